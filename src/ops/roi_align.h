// RoIAlign, suppression and pasting on tensors, with our own kernels (kernels/roi_align, nms, paste_mask).
#pragma once

#include "kernels/paste_mask/paste_mask.h"
#include "ops/torch.h"

namespace tessera::ops {

using kernels::PasteRule;

struct RoiAlignOptions {
  double scale = 1;  // cells of the map per pixel of the image
  bool aligned = true;
  int64_t sampling = 0;  // samples along a side of a bin; 0 or below: one per cell
  int64_t height = 7, width = 7;
};

// x [batch, channels, rows, columns]; boxes [n, 5]: image number, left, top, right, bottom in its pixels. ->
// [n, channels, height, width]. Only x has a gradient. Float and double on a CPU run on the kernel (lower
// precision as float); elsewhere it is composed of ATen operations.
torch::Tensor roi_align(const torch::Tensor& x, const torch::Tensor& boxes, const RoiAlignOptions& options);
// The composition: for each image, products with the row and column weights of its boxes.
torch::Tensor roi_align_unfused(const torch::Tensor& x, const torch::Tensor& boxes,
                                const RoiAlignOptions& options);

// Returns the numbers of the kept boxes of [n, 4], best score [n] first, int64 on the device of the boxes.
// Only boxes of one class [n] int64 suppress each other; undefined: one class for all.
torch::Tensor nms(const torch::Tensor& boxes, const torch::Tensor& scores, const torch::Tensor& classes,
                  double threshold);

// Pastes masks [n, side, side] of boxes [n, 4] onto an image: values [n, height, width] in the masks' type.
torch::Tensor paste_masks(const torch::Tensor& masks, const torch::Tensor& boxes, PasteRule rule,
                          int64_t height, int64_t width);
// The same as 0 and 1, uint8.
torch::Tensor paste_masks_binary(const torch::Tensor& masks, const torch::Tensor& boxes, PasteRule rule,
                                 double threshold, int64_t height, int64_t width);

}  // namespace tessera::ops
