// Attention on learned step sizes, for quantisation-aware training (Q-ViT: Li et al. 2022, Section 4).
//
//   q' = Q_q(R norm_q(q)),  k' = Q_k(R norm_k(k)),  p' = Q_p(softmax(q' k'^T / sqrt(d)) ...),  y = p' Q_v(v)
// norm is a LayerNorm over a head's channels, which makes up for what rounding takes from the distribution of q
// and k; R rotates by position; Q rounds to 2^b levels with a step size and a zero point of its own a head
// (ops/lsq.h, zero_point_quantise). The levels are signed, or from 0 on where the first numbers are not
// negative, as probabilities are.
#pragma once

#include <cstdint>
#include <string>

#include "nn/attention.h"

namespace tessera::nn {

// Parameters q_norm and k_norm, and of each x of q, k, v, weights:
//   x_log_step [heads]     logarithms, so that a step size stays positive; from the first numbers that come
//   x_zero_point [heads]   in levels, 0 at first
// and a buffer x_signed [1], 1 or 0, that the first numbers set as well.
class AttentionRoundingImpl : public torch::nn::Module {
 public:
  AttentionRoundingImpl(int64_t heads, int64_t head_width, int64_t bits);
  // q, k, v [batch, heads, tokens, d], not rotated -> what they attend to, the same shape, in their dtype.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const AttentionExtras& extras);

 private:
  struct Rounding {
    torch::Tensor log_step, zero_point, is_signed;
  };
  Rounding add_rounding(const std::string& name, int64_t heads);
  torch::Tensor round(const torch::Tensor& x, Rounding& rounding) const;

  int64_t bits_;
  LayerNorm q_norm_{nullptr}, k_norm_{nullptr};
  Rounding q_, k_, v_, weights_;
};
TORCH_MODULE(AttentionRounding);

// The part `rounding` of an attention (AttentionImpl::quantise); null without one.
AttentionRoundingImpl* rounding_of(const AttentionImpl& attention);

}  // namespace tessera::nn
