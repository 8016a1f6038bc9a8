#include "nn/boxes.h"

#include "core/error.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

constexpr double kEps = 1e-7;

Tensor column(const Tensor& boxes, int64_t i) { return boxes.select(-1, i); }

struct Pairs {
  Tensor intersection, together;  // areas
};

Pairs pairs_of(const Tensor& a, const Tensor& b) {
  const Tensor low = torch::maximum(a.slice(-1, 0, 2).unsqueeze(1), b.slice(-1, 0, 2));
  const Tensor high = torch::minimum(a.slice(-1, 2, 4).unsqueeze(1), b.slice(-1, 2, 4));
  const Tensor sides = (high - low).clamp_min(0);
  const Tensor intersection = sides.select(-1, 0) * sides.select(-1, 1);
  return {intersection, box_area(a).unsqueeze(1) + box_area(b) - intersection};
}

void check_boxes(const Tensor& a, const Tensor& b) {
  check(a.dim() == 2 && b.dim() == 2 && a.size(1) == 4 && b.size(1) == 4, "boxes have shapes ", a.sizes(),
        " and ", b.sizes(), ", must be [boxes, 4]");
}

}  // namespace

Tensor corners_of_centres(const Tensor& boxes) {
  const Tensor x = column(boxes, 0), y = column(boxes, 1), w = column(boxes, 2), h = column(boxes, 3);
  return torch::stack({x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h}, -1);
}

Tensor centres_of_corners(const Tensor& boxes) {
  const Tensor left = column(boxes, 0), top = column(boxes, 1), right = column(boxes, 2),
               bottom = column(boxes, 3);
  return torch::stack({(left + right) / 2, (top + bottom) / 2, right - left, bottom - top}, -1);
}

Tensor box_area(const Tensor& corners) {
  return (column(corners, 2) - column(corners, 0)) * (column(corners, 3) - column(corners, 1));
}

Tensor pairwise_iou(const Tensor& a, const Tensor& b) {
  check_boxes(a, b);
  const Pairs pairs = pairs_of(a, b);
  return pairs.intersection / pairs.together;
}

Tensor pairwise_generalised_iou(const Tensor& a, const Tensor& b) {
  check_boxes(a, b);
  const Pairs pairs = pairs_of(a, b);
  const Tensor low = torch::minimum(a.slice(-1, 0, 2).unsqueeze(1), b.slice(-1, 0, 2));
  const Tensor high = torch::maximum(a.slice(-1, 2, 4).unsqueeze(1), b.slice(-1, 2, 4));
  const Tensor sides = (high - low).clamp_min(0);
  const Tensor around = sides.select(-1, 0) * sides.select(-1, 1);
  return pairs.intersection / pairs.together - (around - pairs.together) / around;
}

Tensor box_loss(const Tensor& a, const Tensor& b, BoxLoss kind) {
  check_boxes(a, b);
  check(a.size(0) == b.size(0), "boxes of a loss: ", a.size(0), " and ", b.size(0),
        ", must be equal in number");
  const Tensor low = torch::maximum(a.slice(1, 0, 2), b.slice(1, 0, 2)),
               high = torch::minimum(a.slice(1, 2, 4), b.slice(1, 2, 4));
  const Tensor overlap = (high > low).all(1);
  const Tensor sides = high - low;
  const Tensor intersection = torch::where(overlap, sides.select(1, 0) * sides.select(1, 1), 0.0);
  const Tensor together = box_area(a) + box_area(b) - intersection;
  const Tensor iou = intersection / (together + kEps);
  const Tensor around =
      torch::maximum(a.slice(1, 2, 4), b.slice(1, 2, 4)) - torch::minimum(a.slice(1, 0, 2), b.slice(1, 0, 2));
  if (kind == BoxLoss::generalised) {
    const Tensor area = around.select(1, 0) * around.select(1, 1);
    return 1 - iou + (area - together) / (area + kEps);
  }
  const Tensor centre_a = (a.slice(1, 0, 2) + a.slice(1, 2, 4)) / 2,
               centre_b = (b.slice(1, 0, 2) + b.slice(1, 2, 4)) / 2;
  const Tensor distance = (centre_a - centre_b).square().sum(1);
  const Tensor loss = 1 - iou + distance / (around.square().sum(1) + kEps);
  if (kind == BoxLoss::distance) return loss;
  const auto angle = [](const Tensor& box) {
    return torch::atan((column(box, 2) - column(box, 0)) / (column(box, 3) - column(box, 1)));
  };
  const Tensor v = (4 / (std::numbers::pi * std::numbers::pi)) * (angle(b) - angle(a)).square();
  const Tensor weight = (v / (1 - iou + v + kEps)).detach();
  return loss + weight * v;
}

}  // namespace tessera::nn
