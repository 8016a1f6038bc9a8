#include "ops/mlstm_mixer.h"

#include <cmath>

#include "core/error.h"

namespace tessera::ops {
namespace {

// Widens half precision, which has too few bits for sums over many tokens.
torch::Tensor wide(const torch::Tensor& t) {
  const bool half = t.scalar_type() == torch::kBFloat16 || t.scalar_type() == torch::kHalf;
  return half ? t.to(torch::kFloat32) : t;
}

// Returns silu(conv(x)) of the last of these tokens, [batch, 1, inner].
torch::Tensor convolved(const torch::Tensor& recent, const torch::Tensor& weight, const torch::Tensor& bias) {
  const torch::Tensor last =
      weight.defined() ? sequence_conv(recent, weight, bias, 0, 0).slice(1, -1) : recent.slice(1, -1);
  return torch::silu(last);
}

}  // namespace

torch::Tensor mlstm_mixer_step(const torch::Tensor& u, const MlstmMixerParameters& p,
                               const MlstmMixerOptions& options, MlstmMixerState& state) {
  check(u.dim() == 3 && u.size(1) == 1, "mlstm_mixer: a step takes [batch, 1, 2 * inner], not ", u.sizes());
  check((!p.conv_weight.defined() || (p.conv_weight.dim() == 3 && options.causal)) && !options.reverse,
        "mlstm_mixer: a step needs a causal convolution, or none, and the tokens in their order");
  const int64_t batch = u.size(0), inner = u.size(2) / 2, heads = options.heads, d = inner / heads;
  const torch::Tensor x = u.slice(2, 0, inner), z = u.slice(2, inner);
  const int64_t before = p.conv_weight.defined() ? p.conv_weight.size(-1) - 1 : 0;
  if (!state.inputs.defined()) state.inputs = torch::zeros({batch, before, inner}, x.options());
  const torch::Tensor recent = torch::cat({state.inputs, x}, 1);
  const torch::Tensor a = convolved(recent, p.conv_weight, p.conv_bias);
  const auto read = [&](const torch::Tensor& weight, const torch::Tensor& bias) {
    return weight.defined() ? convolved(recent, weight, bias) : a;
  };
  const torch::Tensor q = headwise_linear(a, p.q_weight, p.q_bias);
  // The cell divides keys by sqrt(d), including the bias.
  const bool whole_bias = options.paper_cell && p.k_bias.defined();
  const torch::Tensor k =
      headwise_linear(read(p.k_conv_weight, p.k_conv_bias), p.k_weight,
                      whole_bias ? p.k_bias * std::sqrt(static_cast<double>(d)) : p.k_bias);
  const torch::Tensor v =
      headwise_linear(options.value_conv ? read(p.v_conv_weight, p.v_conv_bias) : x, p.v_weight, p.v_bias);
  const torch::Tensor seen = options.paper_cell ? x : torch::cat({q, k, v}, -1);
  const auto gate = [&](const torch::Tensor& weight, const torch::Tensor& bias) {
    return wide(torch::linear(seen, weight, bias)).squeeze(1);
  };
  const auto by_head = [&](const torch::Tensor& t) { return wide(t).view({batch, heads, d}); };
  if (!state.cell.c.defined()) state.cell = mlstm_start(by_head(k).unsqueeze(2), by_head(v).unsqueeze(2));
  const MlstmOptions cell{.eps = options.paper_cell ? 0 : options.cell_eps,
                          .exponential_forget = options.paper_cell};
  const MlstmResult result =
      mlstm_step(by_head(q), by_head(k), by_head(v), gate(p.input_weight, p.input_bias),
                 gate(p.forget_weight, p.forget_bias), state.cell, cell);
  state.cell = result.last;
  state.inputs = recent.slice(1, 1);
  const torch::Tensor h = result.h.reshape({batch, 1, inner}).to(u.scalar_type());
  torch::Tensor y = headwise_norm(h, heads, p.norm_weight + 1, p.norm_bias, options.norm_eps);
  if (p.skip.defined()) y = y + p.skip * a;
  return y * (options.paper_cell ? torch::sigmoid(z) : torch::silu(z));
}

}  // namespace tessera::ops
