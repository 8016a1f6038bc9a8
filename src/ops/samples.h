// Numbers that each sample of a batch has of its own, [samples, width], beside those that all of them share, [width].
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

inline bool of_each_sample(const torch::Tensor& numbers) { return numbers.defined() && numbers.dim() == 2; }

// How many rows of x [samples, …, width] a sample has; 0 where the numbers are for all rows.
inline int64_t sample_rows(const torch::Tensor& numbers, const torch::Tensor& x) {
  return of_each_sample(numbers) ? x.numel() / x.size(-1) / numbers.size(0) : 0;
}

// Whether there is a number for each of `width` channels, and where samples have their own, for a whole number of
// x's rows.
inline bool fits_rows(const torch::Tensor& numbers, const torch::Tensor& x, int64_t width) {
  if (!of_each_sample(numbers)) return numbers.numel() == width;
  const int64_t samples = numbers.size(0), rows = x.size(-1) > 0 ? x.numel() / x.size(-1) : 0;
  return numbers.size(1) == width && samples > 0 && rows % samples == 0;
}

// The numbers in a shape that broadcasts against x [samples, …, width].
inline torch::Tensor beside(const torch::Tensor& numbers, const torch::Tensor& x) {
  if (!of_each_sample(numbers)) return numbers;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = numbers.size(0), shape.back() = numbers.size(1);
  return numbers.view(shape);
}

}  // namespace tessera::ops
