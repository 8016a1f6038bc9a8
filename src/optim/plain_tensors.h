// The tensors that the plain loops can process.
#pragma once

#include <torch/types.h>

namespace tessera::train::plain {

// True for float32 in main memory without gaps, in any order of dimensions.
inline bool is_plain(const torch::Tensor& t) {
  return t.scalar_type() == torch::kFloat32 && t.device().is_cpu() && t.layout() == torch::kStrided &&
         t.is_non_overlapping_and_dense();
}

// True if element i in memory is the same element in both: same shape and order of dimensions.
inline bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

}  // namespace tessera::train::plain
