#include "nn/quantised_attention.h"

#include <limits>

#include "nn/init.h"
#include "ops/attention.h"
#include "ops/lsq.h"

namespace tessera::nn {
namespace {

// Marks a step size that no data have set yet.
constexpr double kUnsetStep = std::numeric_limits<double>::infinity();
// If all values of the first data are above this, they count as non-negative, as in Q-ViT's code.
constexpr double kNegative = -1e-5;
constexpr double kNormEps = 1e-5;  // PyTorch's default, as in Q-ViT's code

}  // namespace

AttentionRoundingImpl::AttentionRoundingImpl(int64_t heads, int64_t head_width, int64_t bits) : bits_(bits) {
  q_norm_ = register_module("q_norm", LayerNorm(head_width, LayerNormOptions{.eps = kNormEps}));
  k_norm_ = register_module("k_norm", LayerNorm(head_width, LayerNormOptions{.eps = kNormEps}));
  q_ = add_rounding("q", heads), k_ = add_rounding("k", heads), v_ = add_rounding("v", heads);
  weights_ = add_rounding("weights", heads);
}

AttentionRoundingImpl::Rounding AttentionRoundingImpl::add_rounding(const std::string& name, int64_t heads) {
  torch::Tensor unset = zeros({heads});
  if (!unset.is_meta()) unset.fill_(kUnsetStep);
  return {register_parameter(name + "_log_step", unset),
          register_parameter(name + "_zero_point", zeros({heads})),
          register_buffer(name + "_signed", zeros({1})),
          {}};
}

// Quantises x [batch, heads, rows, columns] to the levels of its heads.
torch::Tensor AttentionRoundingImpl::round(const torch::Tensor& x, Rounding& rounding) const {
  const auto type = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const torch::Tensor wide = x.to(type);
  if (!rounding.known.hold(rounding.log_step)) {
    const torch::NoGradGuard no_grad;
    const bool negative = wide.min().item<double>() < kNegative;
    rounding.is_signed.fill_(negative ? 1 : 0);
    const torch::Tensor heads = wide.transpose(0, 1);
    const auto first =
        ops::first_step_size(heads, ops::quantised_range(bits_, negative), /*per_channel=*/true);
    rounding.log_step.copy_(first.clamp_min(1e-12).log().flatten());
  }
  const auto range = ops::quantised_range(bits_, rounding.known.value_of(rounding.is_signed) != 0);
  const auto by_head = [](const torch::Tensor& numbers) { return numbers.view({1, -1, 1, 1}); };
  return ops::zero_point_quantise(wide, by_head(rounding.log_step.exp()), by_head(rounding.zero_point), range,
                                  x[0][0].numel())
      .to(x.scalar_type());
}

torch::Tensor AttentionRoundingImpl::forward(const torch::Tensor& q, const torch::Tensor& k,
                                             const torch::Tensor& v, const AttentionExtras& extras) {
  const Rotation& keys = extras.key_rotation.defined() ? extras.key_rotation : extras.rotation;
  const torch::Tensor normed_queries = q_norm_(q), normed_keys = k_norm_(k);
  tap(extras.taps, extras.name + ".queries", normed_queries);
  tap(extras.taps, extras.name + ".keys", normed_keys);
  const torch::Tensor queries = round(rotate(normed_queries, extras.rotation), q_);
  const torch::Tensor read = round(rotate(normed_keys, keys), k_);
  const torch::Tensor weights =
      round(ops::attention_weights(
                queries, read,
                {.bias = extras.bias, .causal = extras.causal, .future_weight = extras.future_weight}),
            weights_);
  tap(extras.taps, extras.name + ".attention", weights);
  return torch::matmul(weights.to(v.scalar_type()), round(v, v_));
}

AttentionRoundingImpl* rounding_of(const AttentionImpl& attention) {
  const auto parts = attention.named_children();
  const auto* part = parts.find("rounding");
  return part ? dynamic_cast<AttentionRoundingImpl*>(part->get()) : nullptr;
}

}  // namespace tessera::nn
