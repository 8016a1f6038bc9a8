#include "tasks/pretrain/maskfeat.h"

#include <numbers>

#include "core/error.h"

namespace tessera::tasks {
namespace {

// Differences along the last axis but `axis`, smoothed with weights 1 2 1 along the other. Differences come
// first, so at a reflected border they are exactly 0.
torch::Tensor sobel(const torch::Tensor& padded, int64_t axis) {
  const int64_t across = axis == 2 ? 3 : 2, last = padded.size(axis), other = padded.size(across);
  const torch::Tensor difference = padded.slice(axis, 0, last - 2) - padded.slice(axis, 2, last);
  return difference.slice(across, 0, other - 2) + 2 * difference.slice(across, 1, other - 1) +
         difference.slice(across, 2, other);
}

// exp(-(distance from the middle / deviation)^2 / 2) along both axes, with sum 1.
torch::Tensor gaussian(int64_t side, const torch::TensorOptions& options) {
  const torch::Tensor place = torch::arange(side, options);
  const torch::Tensor scaled = (place - place.mean()) / (static_cast<double>(side) / 2);
  const torch::Tensor line = (-0.5 * scaled.square()).exp();
  const torch::Tensor window = torch::outer(line, line);
  return window / window.sum();
}

}  // namespace

torch::Tensor hog(const torch::Tensor& images, const HogOptions& options) {
  const int64_t height = images.size(2), width = images.size(3);
  check(height >= 2 && width >= 2 && height % options.cell == 0 && width % options.cell == 0,
        "histograms of gradients: an image of ", height, " x ", width,
        " pixels, both must be whole cells of ", options.cell);
  const torch::Tensor padded = torch::reflection_pad2d(images, {1, 1, 1, 1});
  const torch::Tensor x = sobel(padded, 3), y = sobel(padded, 2);
  torch::Tensor magnitude = (x.square() + y.square()).sqrt();
  if (options.window > 0) {
    check(height % options.window == 0 && width % options.window == 0,
          "histograms of gradients: an image of ", height, " x ", width,
          " pixels is not a whole number of windows of ", options.window);
    magnitude =
        magnitude *
        gaussian(options.window, images.options()).repeat({height / options.window, width / options.window});
  }
  const torch::Tensor phase = torch::atan2(x, y) / std::numbers::pi * static_cast<double>(options.bins);
  const torch::Tensor bin = phase.floor().to(torch::kInt64).remainder(options.bins).unsqueeze(2);
  const torch::Tensor spread =
      torch::zeros({images.size(0), images.size(1), options.bins, height, width}, images.options())
          .scatter_(2, bin, magnitude.unsqueeze(2));
  const torch::Tensor sums = spread.unflatten(4, {width / options.cell, options.cell})
                                 .unflatten(3, {height / options.cell, options.cell})
                                 .sum({4, 6});
  return sums / torch::linalg_vector_norm(sums, 2, {2}, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace tessera::tasks
