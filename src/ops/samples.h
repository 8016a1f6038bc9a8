// Values per sample of a batch, [samples, width], or shared by all samples, [width].
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

inline bool of_each_sample(const torch::Tensor& numbers) { return numbers.defined() && numbers.dim() == 2; }

// Returns the rows of x [samples, …, width] per sample; 0 if the values are for all rows.
inline int64_t sample_rows(const torch::Tensor& numbers, const torch::Tensor& x) {
  return of_each_sample(numbers) ? x.numel() / x.size(-1) / numbers.size(0) : 0;
}

// True if there is a number per channel of `width` and, for numbers per sample, x's rows divide into the
// samples.
inline bool fits_rows(const torch::Tensor& numbers, const torch::Tensor& x, int64_t width) {
  if (!of_each_sample(numbers)) return numbers.numel() == width;
  const int64_t samples = numbers.size(0), rows = x.size(-1) > 0 ? x.numel() / x.size(-1) : 0;
  return numbers.size(1) == width && samples > 0 && rows % samples == 0;
}

// Returns the values in a shape that broadcasts against x [samples, …, width].
inline torch::Tensor beside(const torch::Tensor& numbers, const torch::Tensor& x) {
  if (!of_each_sample(numbers)) return numbers;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = numbers.size(0), shape.back() = numbers.size(1);
  return numbers.view(shape);
}

}  // namespace tessera::ops
