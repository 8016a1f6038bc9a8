// Inner loops on plain float32 memory for training: optimiser updates, norms, averages.
//
// Each makes one pass over memory and is bound by memory bandwidth, so the cost is the bytes read and
// written. Element-wise loops give the same bits for any split of the range. Sums are in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train::plain {

// Adam (Kingma & Ba 2015) with decoupled decay (AdamW, Loshchilov & Hutter 2019) or L2 decay.
//   g' = scale g + l2 p
//   p <- decay p;  m <- beta1 m + (1-beta1) g';  v <- beta2 v + (1-beta2) g'^2
//   p <- p - step_size m / (sqrt(v) / root_bias2 + eps)
struct Adam {
  float scale, l2, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_bias2, eps;
};
void adam(float* p, const float* g, float* m, float* v, int64_t n, const Adam& c);
// AMSGrad (Reddi et al. 2018): largest <- max(largest, v), which replaces v in the last line.
void amsgrad(float* p, const float* g, float* m, float* v, float* largest, int64_t n, const Adam& c);

// LAMB (You et al. 2020) in two passes, since the step size depends on the norms of whole tensors. The first
// updates m and v. Both compute u = (m / bias1) / (sqrt(v) / root_bias2 + eps) + l2 p; the second does p <- p
// - step u.
struct Lamb {
  float scale, l2, decay, beta1, beta3, beta2, one_minus_beta2, bias1, root_bias2, eps;
};
struct LambNorms {
  double parameter = 0, update = 0;  // sums of squares
};
LambNorms lamb_moments(float* p, const float* g, float* m, float* v, int64_t n, const Lamb& c);
void lamb_step(float* p, const float* m, const float* v, int64_t n, const Lamb& c, float step);

// Stochastic gradient descent with momentum: g' = trust (scale g + l2 p); b <- momentum b + keep g' (first: b
// <- g'); p <- p - lr d with d = b, or g' + momentum b with Nesterov's form. Without momentum `b` is null and
// d = g'.
struct Sgd {
  float scale, l2, trust, momentum, keep, lr;
  bool first, nesterov;
};
void sgd(float* p, const float* g, float* b, int64_t n, const Sgd& c);

double sum_of_squares(const float* x, int64_t n);
double sum_of_magnitudes(const float* x, int64_t n);
double sum_of_powers(const float* x, int64_t n, double divisor, double power);  // of |x| / divisor
float largest_magnitude(const float* x, int64_t n);                             // NaN if any is
// mean <- mean + add (x - mean): if both are equal the bits do not change, and add = 1 gives x.
void average(float* mean, const float* x, int64_t n, float add);

// Blocks of tensors, divided evenly among threads, at boundaries that do not depend on their number.
struct Block {
  size_t tensor;  // index into the sizes given
  int64_t begin, end;
};
std::vector<Block> cut_into_blocks(std::span<const int64_t> sizes);

// Calls body(i) for every i < blocks.size(), with the elements divided evenly among the compute threads.
template <class Body>
void for_each_block(const std::vector<Block>& blocks, const Body& body);

}  // namespace tessera::train::plain

#include "core/threads.h"

template <class Body>
void tessera::train::plain::for_each_block(const std::vector<Block>& blocks, const Body& body) {
  int64_t elements = 0;
  for (const Block& block : blocks) elements += block.end - block.begin;
  constexpr int64_t kWorthAThread = 1 << 15;
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t grain = elements < kWorthAThread ? count : 1;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<size_t>(i));
  });
}
