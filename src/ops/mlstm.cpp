#include "ops/mlstm.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::ops {

torch::Tensor mlstm_parallel(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                             const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                             const MlstmOptions& options) {
  check(q.dim() == 4 && k.sizes() == q.sizes() && v.dim() == 4 &&
            v.sizes().slice(0, 3) == q.sizes().slice(0, 3),
        "mlstm: q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), " must be [batch, heads, tokens, d]");
  check(input_gate.sizes() == q.sizes().slice(0, 3) && forget_gate.sizes() == input_gate.sizes(),
        "mlstm: gates ", input_gate.sizes(), " and ", forget_gate.sizes(), " must be [batch, heads, tokens]");
  const int64_t tokens = q.size(2);
  const torch::Tensor decay = torch::cumsum(torch::log_sigmoid(forget_gate), -1);  // F
  const torch::Tensor later = torch::ones({tokens, tokens}, q.options().dtype(torch::kBool)).triu(1);
  const torch::Tensor log_d = (decay.unsqueeze(-1) - decay.unsqueeze(-2) + input_gate.unsqueeze(-2))
                                  .masked_fill(later, -std::numeric_limits<double>::infinity());
  const torch::Tensor m = options.rowwise
                              ? std::get<0>(log_d.max(-1, /*keepdim=*/true))
                              : std::get<0>(log_d.flatten(-2).max(-1, /*keepdim=*/true)).unsqueeze(-1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const torch::Tensor c = torch::matmul(q, (k * scale).transpose(-2, -1)) * torch::exp(log_d - m);
  const torch::Tensor n = torch::maximum(c.sum(-1, /*keepdim=*/true).abs(), torch::exp(-m));
  return torch::matmul(c / (n + options.eps), v);
}

}  // namespace tessera::ops
