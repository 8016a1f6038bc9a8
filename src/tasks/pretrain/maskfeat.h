// MaskFeat (Wei et al. 2022, "Masked feature prediction for self-supervised visual pre-training"): mask tokens in
// place of patches, and a linear head that predicts histograms of oriented gradients, or pixels.
//
//   rectangles of patches are masked until a share mask_ratio is
//   y = W norm(map) + b for each masked patch, map after the last block
//   loss = mean over masked patches of mean over numbers of (y - t)^2
// t are the histograms of all cells of a patch, or its pixels less their mean, divided by their deviation.
//
// A sample is an image. The head's parameters have the names of the published code.
#pragma once

#include <array>

#include "nn/linear.h"
#include "nn/norm.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class MaskFeatTarget { hog, pixels };

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::MaskFeatTarget> {
  static constexpr std::array names = {"hog", "pixels"};
};

namespace tessera::tasks {

struct MaskFeatConfig {
  double mask_ratio = 0.4;
  int64_t mask_least = 16;
  MaskFeatTarget target = MaskFeatTarget::hog;
  int64_t bins = 9, cell = 8, window = 0;
  template <class V>
  void visit(V& v) {
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "share of the patches that is masked");
    v("mask_least", mask_least, between(1, 1 << 20), "patches of the smallest masked rectangle");
    v("target", target, choice<MaskFeatTarget>(), "pixels: normalised in each patch");
    v("bins", bins, between(1, 360), "hog: bins of unsigned orientations");
    v("cell", cell, between(1, 1024), "hog: side of a cell in pixels");
    v("window", window, between(0, 65536), "hog: side of a Gaussian window over the magnitudes, 0 = none");
  }
};

// Histograms of oriented gradients (Dalal & Triggs 2005) as MaskFeat's code computes them.
struct HogOptions {
  int64_t bins = 9;    // of unsigned orientations
  int64_t cell = 8;    // side of a cell in pixels
  int64_t window = 0;  // side of a Gaussian window (deviation: window / 2) on the magnitudes; 0 = none
};

// Returns histograms of each channel of images [batch, channels, height, width], sides whole cells:
// [batch, channels, bins, height / cell, width / cell]. Gradients are Sobel's, with reflected borders. A pixel
// counts for one bin; each histogram has length 1, or is 0. Throws Error for smaller images.
torch::Tensor hog(const torch::Tensor& images, const HogOptions& options);

// Returns the targets [batch, rows * columns, numbers] of patches of `patch` pixels: histograms in the order channel,
// bin, row, column of the cell; pixels in the order channel, row, column.
torch::Tensor maskfeat_targets(const torch::Tensor& images, int64_t patch, const MaskFeatConfig& config);

// The head: a norm and a linear layer, "pred_head.transforms.0.0" and "pred_head.projections.0". Maps
// [..., width] to [..., outputs].
class MaskFeatLayers : public torch::nn::Module {
 public:
  MaskFeatLayers(int64_t width, int64_t outputs);
  torch::Tensor forward(const torch::Tensor& tokens);
  int64_t macs() const;  // per token

 private:
  nn::LayerNorm norm_{nullptr};
  nn::Linear layer_{nullptr};
};

TaskKind maskfeat_kind();

}  // namespace tessera::tasks
