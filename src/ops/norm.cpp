#include "ops/norm.h"

#include <optional>

#include "ops/inference.h"
#include "ops/profile.h"

namespace tessera::ops {
namespace {

torch::Tensor fused_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps, bool centred, kernels::Arithmetic arithmetic) {
  const torch::Tensor y = torch::empty(x.sizes(), x.options().dtype(output_type(arithmetic)));
  const torch::Tensor scale = floats(weight), shift = floats(bias);
  const RowsOfTensor rows = rows_of(x);
  const Profiled profiled("norm");
  kernels::norm_forward({rows.count,
                         x.size(-1),
                         rows.rows,
                         {float_pointer(scale), float_pointer(shift), static_cast<float>(eps), centred},
                         rows_to(y)});
  return y;
}

}  // namespace

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps) {
  if (const std::optional<kernels::Arithmetic> arithmetic = fused_arithmetic(x))
    return fused_norm(x, weight, bias, eps, true, *arithmetic);
  return torch::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
  if (const std::optional<kernels::Arithmetic> arithmetic = fused_arithmetic(x))
    return fused_norm(x, weight, {}, eps, false, *arithmetic);
  return x * torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps) * weight;
}

}  // namespace tessera::ops
