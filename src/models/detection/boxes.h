// Boxes of detectors: deltas, anchors, and their matches with ground truths. Boxes are [n, 4]: left, top,
// right, bottom in pixels, with the type and device of their tensor.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <vector>

#include "models/base/family.h"

namespace tessera::models {

torch::Tensor clip_boxes(const torch::Tensor& boxes, Extent image);
// Returns the indices of the boxes with both sides at least `side`, or above it if `beyond`.
torch::Tensor boxes_of_size(const torch::Tensor& boxes, double side, bool beyond = false);

// Reshapes deltas [boxes, 4 classes] to [boxes, classes, 4]; also without boxes.
torch::Tensor by_class(const torch::Tensor& deltas);

// The offset of a target from a box, in units of the box (Girshick et al. 2014):
//   dx = wx (gx - px) / pw,  dw = ww log(gw / pw)
// Decoding divides dw and dh by their weights and clamps them at log(1000 / 16), and at its negative if
// `both_sides` (mmdet).
struct BoxCoder {
  std::array<double, 4> weights = {1, 1, 1, 1};
  bool both_sides = false;

  torch::Tensor encode(const torch::Tensor& boxes, const torch::Tensor& targets) const;
  // Maps deltas [n, 4 k] to boxes [n, 4 k].
  torch::Tensor decode(const torch::Tensor& deltas, const torch::Tensor& boxes) const;
};

// Anchors in row-major order of their cells. An anchor of size s and ratio r (height over width) has sides
// s / sqrt(r) and s sqrt(r), and its centre at (column + offset) * stride.
struct AnchorOptions {
  std::vector<std::vector<double>> sizes = {{32}, {64}, {128}, {256}, {512}};  // pixels, one list per level
  std::vector<double> ratios = {0.5, 1, 2};
  bool ratios_first = false;  // order: by ratio, then size (torchvision, mmdet), else by size, then ratio
  bool rounded = false;       // rounds sides to whole numbers around the centre (torchvision)
  double offset = 0;

  int64_t per_cell(int64_t level) const {
    return static_cast<int64_t>(sizes[static_cast<size_t>(level)].size() * ratios.size());
  }
  // Returns the anchors of a level, [rows * columns * per_cell, 4].
  torch::Tensor anchors(int64_t level, Extent grid, Extent stride, torch::ScalarType type) const;
};

// Treatment of boxes that overlap a ground truth most, but too little to match.
enum class WeakMatches {
  none,
  keep_own,  // the box gets its own best ground truth (torchvision, detectron2)
  given,     // the box gets that ground truth, the last one of several (mmdet)
};
struct MatchOptions {
  double low = 0.3, high = 0.7;
  WeakMatches weak = WeakMatches::none;
  double weakest = 0;  // given: a ground truth with a best overlap below it gets no box
};
struct Matches {
  static constexpr int64_t kBackground = -1, kBetween = -2;
  std::vector<int64_t> truth;  // per box: its ground truth; kBackground below `low`, kBetween below `high`
  std::vector<int64_t> best;   // per box: the ground truth of largest overlap (the first of equals), or 0
};
// Overlaps are compared in double. Without ground truths all boxes are background. Boxes on a GPU are matched there, and two numbers a
// box are read back.
Matches match_boxes(const torch::Tensor& boxes, const torch::Tensor& truths, const MatchOptions& options);
// The same by tensor operations on the device of the boxes.
Matches match_boxes_there(const torch::Tensor& boxes, const torch::Tensor& truths,
                          const MatchOptions& options);

}  // namespace tessera::models
