// Learned-step-size quantisation for training (LSQ: Esser et al. 2020; with an offset LSQ+: Bhalgat et al.
// 2020; both as in Q-ViT: Li et al. 2022).
//
//   y = s round(clamp((x - o) / s, -Qn, Qp)) + o              halves to even; computed as (x - o) (1 / s),
//                                                             the integers of the int8 kernels
//   dy/dx = 1 where -Qn < (x - o) / s < Qp, else 0
//   dy/ds = -Qn below, Qp above, round(v) - v inside, v = (x - o) / s; all of it times 1 / sqrt(N Qp)
//   dy/do = 1 outside, 0 inside
// N is the number of elements that share a step size, or a number given by the caller. For activations, it
// counts the elements of one sample (LSQ's number of features), so that a batch may be computed in parts.
#pragma once

#include <cstdint>

#include "ops/torch.h"

namespace tessera::ops {

// The range of integers for a width in bits: -Qn … Qp.
struct QuantisedRange {
  int64_t low, high;  // Qn, Qp
};
// Signed: 2^(b-1) and 2^(b-1) - 1; unsigned: 0 and 2^b - 1. Widths of 2 to 16.
QuantisedRange quantised_range(int64_t bits, bool with_sign);

// `step_size` broadcasts over x: one number, or one per channel; positive. `offset` is one number or
// undefined. Differentiable in x, step size and offset. `sharing` is N; 0: the number of elements of x.
torch::Tensor learned_step_size_quantise(const torch::Tensor& x, const torch::Tensor& step_size,
                                         const QuantisedRange& range, const torch::Tensor& offset = {},
                                         int64_t sharing = 0);

// With a zero point instead of an offset, as in the code of Q-ViT (Li et al. 2022):
//   y = s (round(clamp(x / s + z, -Qn, Qp)) - z)              z: the integer nearest to `zero_point`
//   dy/ds = -Qn - z below, Qp - z above, round(v) - v inside, v = x / s + z
//   dy/dz = -s outside, 0 inside                             both times 1 / sqrt(N Qp)
// `zero_point` broadcasts over x like the step size. Differentiable in all three.
torch::Tensor zero_point_quantise(const torch::Tensor& x, const torch::Tensor& step_size,
                                  const torch::Tensor& zero_point, const QuantisedRange& range,
                                  int64_t sharing = 0);

// Returns the first step size: 2 mean|x| / sqrt(Qp), over the whole tensor or, with `per_channel`, over each
// x[i], in a shape that broadcasts.
torch::Tensor first_step_size(const torch::Tensor& x, const QuantisedRange& range, bool per_channel);

}  // namespace tessera::ops
