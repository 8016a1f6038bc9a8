// Attention with learned step sizes, for quantisation-aware training (Q-ViT: Li et al. 2022, Section 4).
//
//   q' = Q_q(R norm_q(q)),  k' = Q_k(R norm_k(k)),  p' = Q_p(softmax(q' k'^T / sqrt(d)) ...),  y = p' Q_v(v)
// norm is a LayerNorm over a head's channels, which compensates for the effect of rounding on the
// distribution of q and k. R rotates by position. Q rounds to 2^b levels with a step size and a zero point
// per head (ops/lsq.h, zero_point_quantise). The levels are signed, or start at 0 if the first data are
// non-negative, like probabilities.
#pragma once

#include <cstdint>
#include <string>

#include "nn/attention.h"
#include "nn/host_values.h"

namespace tessera::nn {

// Parameters q_norm and k_norm, and for each x of q, k, v, weights:
//   x_log_step [heads] logarithms, so that a step size stays positive; set from the first data
//   x_zero_point [heads]   in levels, initially 0
// and a buffer x_signed [1], 1 or 0, also set from the first data.
class AttentionRoundingImpl : public torch::nn::Module {
 public:
  AttentionRoundingImpl(int64_t heads, int64_t head_width, int64_t bits);
  // q, k, v [batch, heads, tokens, d], not rotated -> the attended values, in the same shape and dtype.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const AttentionExtras& extras);

 private:
  struct Rounding {
    torch::Tensor log_step, zero_point, is_signed;
    KnownSteps known;
  };
  Rounding add_rounding(const std::string& name, int64_t heads);
  torch::Tensor round(const torch::Tensor& x, Rounding& rounding) const;

  int64_t bits_;
  LayerNorm q_norm_{nullptr}, k_norm_{nullptr};
  Rounding q_, k_, v_, weights_;
};
TORCH_MODULE(AttentionRounding);

// Returns the part `rounding` of an attention (AttentionImpl::quantise); null if it has none.
AttentionRoundingImpl* rounding_of(const AttentionImpl& attention);

}  // namespace tessera::nn
