// Boxes of detectors: deltas, anchors, and which ground truth a box belongs to. Boxes are [n, 4]: left, top, right,
// bottom in pixels, in the type and on the device of their tensor.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <vector>

#include "models/base/family.h"

namespace tessera::models {

torch::Tensor clip_boxes(const torch::Tensor& boxes, Extent image);
// Numbers of the boxes with both sides at least `side`, or above it where `beyond`.
torch::Tensor boxes_of_size(const torch::Tensor& boxes, double side, bool beyond = false);

// Deltas [boxes, 4 classes] as [boxes, classes, 4]; of no boxes too.
torch::Tensor by_class(const torch::Tensor& deltas);

// Where a target lies from a box, in units of the box (Girshick et al. 2014):
//   dx = wx (gx - px) / pw,  dw = ww log(gw / pw)
// Decoding cuts dw and dh, divided by their weights, at log(1000 / 16), from below too where `both_sides` (mmdet).
struct BoxCoder {
  std::array<double, 4> weights = {1, 1, 1, 1};
  bool both_sides = false;

  torch::Tensor encode(const torch::Tensor& boxes, const torch::Tensor& targets) const;
  // deltas [n, 4 k] -> boxes [n, 4 k].
  torch::Tensor decode(const torch::Tensor& deltas, const torch::Tensor& boxes) const;
};

// Anchors of one cell after the other, row by row. An anchor of size s and ratio r (height over width) has sides
// s / sqrt(r) and s sqrt(r), its middle at (column + offset) * stride.
struct AnchorOptions {
  std::vector<std::vector<double>> sizes = {{32}, {64}, {128}, {256}, {512}};  // pixels, a list a level
  std::vector<double> ratios = {0.5, 1, 2};
  bool ratios_first = false;  // all sizes of a ratio together (torchvision, mmdet), else all ratios of a size
  bool rounded = false;       // sides to whole numbers around the middle (torchvision)
  double offset = 0;

  int64_t per_cell(int64_t level) const {
    return static_cast<int64_t>(sizes[static_cast<size_t>(level)].size() * ratios.size());
  }
  // [rows * columns * per_cell, 4]
  torch::Tensor anchors(int64_t level, Extent grid, Extent stride, torch::ScalarType type) const;
};

// What happens to the boxes that overlap a ground truth best, but too little to be matched.
enum class WeakMatches {
  none,
  keep_own,  // such a box gets its own best ground truth (torchvision, detectron2)
  given,     // it is given to that ground truth, to the last of several (mmdet)
};
struct MatchOptions {
  double low = 0.3, high = 0.7;
  WeakMatches weak = WeakMatches::none;
  double weakest = 0;  // given: a ground truth whose best is below it gets none
};
struct Matches {
  static constexpr int64_t kBackground = -1, kBetween = -2;
  std::vector<int64_t>
      truth;  // of each box: its ground truth, kBackground below `low`, kBetween below `high`
  std::vector<int64_t>
      best;  // the ground truth that it overlaps most (the first of equal ones); 0 without any
};
// Overlaps are compared in double. Without ground truth everything is background.
Matches match_boxes(const torch::Tensor& boxes, const torch::Tensor& truths, const MatchOptions& options);

}  // namespace tessera::models
