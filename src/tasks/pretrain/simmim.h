// SimMIM (Xie et al. 2022, "SimMIM: a simple framework for masked image modeling"): mask tokens in place of patches,
// and a linear head that predicts the pixels.
//
//   units of mask_patch x mask_patch pixels; a share mask_ratio of them, rounded up, is masked
//   y = decoder(map), one layer with 3 s^2 outputs per cell of s x s pixels
//   loss = sum over masked pixels and channels of |y - image| / (3 masked pixels)
//
// A sample is an image, normalised by [preprocess]. The head's parameters have the names of the published files.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/base/registry.h"

namespace tessera::tasks {

struct SimMimConfig {
  double mask_ratio = 0.6;
  int64_t mask_patch = 32;
  template <class V>
  void visit(V& v) {
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "share of the units that is masked");
    v("mask_patch", mask_patch, between(1, 1024), "side of a unit in pixels");
  }
};

// Units of `scale` x `scale` patches, which are masked as a whole.
struct MaskUnits {
  int64_t rows = 0, columns = 0, scale = 1;
  int64_t count() const { return rows * columns; }
};
// Returns 1 for the patches of the first `masked` units of `order`, a permutation of the units in row-major order;
// patches too are in row-major order.
std::vector<int64_t> simmim_mask(const MaskUnits& units, const std::vector<int64_t>& order, int64_t masked);
// Returns the units that a share `ratio` of `units` masks, rounded up.
int64_t simmim_masked(int64_t units, double ratio);

// Returns the predicted images [batch, 3, rows * stride, columns * stride] of the head's outputs
// [batch, rows, columns, 3 stride^2], channel by channel, then row by row.
torch::Tensor simmim_images(const torch::Tensor& outputs, int64_t stride);
// Returns the sum over masked pixels and channels of the error, [batch]. `mask`: [batch, height, width], 1 = masked.
torch::Tensor simmim_errors(const torch::Tensor& predicted, const torch::Tensor& images,
                            const torch::Tensor& mask);

TaskKind simmim_kind();

}  // namespace tessera::tasks
