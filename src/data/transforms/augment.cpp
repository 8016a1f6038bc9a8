#include "data/transforms/augment.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "data/base/geometry.h"
#include "data/transforms/augment_operations.h"

namespace tessera::data {
namespace {

// Certain events draw nothing.
bool happens(double probability, Draws& draws) {
  return probability >= 1 || (probability > 0 && draws.fraction() < probability);
}

AugmentConfig jitter_of(const ViewAugment& view) {
  AugmentConfig config;
  config.color_jitter = view.color_jitter;
  return config;
}

}  // namespace

PixelAugment::PixelAugment(const AugmentConfig& config, const Preprocess& preprocess)
    : three_augment_(config.three_augment), jitter_(config.color_jitter) {
  if (!config.auto_augment.empty()) policy_ = parse_policy(config.auto_augment);
  if (!jitter_.empty() && jitter_.size() != 3 && jitter_.size() != 4)
    fail_usage("color_jitter has ", jitter_.size(),
               " numbers, must be 3 (brightness, contrast, saturation) or 4 (and hue)");
  for (const double x : jitter_)
    if (!(x >= 0)) fail_usage("color_jitter holds ", x, ", must not be negative");
  if (jitter_.size() == 4 && jitter_[3] > 0.5)
    fail_usage("color_jitter's hue is ", jitter_[3], ", must be at most 0.5");
  settings_.translate_pixels = std::floor(static_cast<double>(preprocess.size) * 0.45);
  for (size_t c = 0; c < 3 && c < preprocess.mean.size(); ++c)
    settings_.fill[c] = static_cast<uint8_t>(std::clamp(round_half_even(255 * preprocess.mean[c]), 0, 255));
  const Interpolation interpolation = parse_interpolation(preprocess.interpolation);
  const bool moves = interpolation == Interpolation::nearest || interpolation == Interpolation::bilinear ||
                     interpolation == Interpolation::bicubic;
  settings_.interpolation = moves ? interpolation : Interpolation::bicubic;
}

PixelAugment::PixelAugment(const ViewAugment& config, const Preprocess& preprocess)
    : PixelAugment(jitter_of(config), preprocess) {
  view_ = config;
}

void PixelAugment::apply(Draws& draws, Image& image) const {
  if (view_) {
    if (!jitter_.empty() && happens(view_->jitter, draws)) color_jitter(jitter_, draws, image);
    if (happens(view_->grayscale, draws)) grayscale(image);
    if (happens(view_->blur, draws)) image = gaussian_blur(image, draws.uniform(0.1, 2.0));
    if (happens(view_->solarize, draws)) solarize(image, 128);
    return;
  }
  if (policy_) apply_policy(*policy_, settings_, draws, image);
  if (three_augment_) three_augment(draws, image);
  if (!jitter_.empty()) color_jitter(jitter_, draws, image);
}

void three_augment(Draws& draws, Image& image) {
  switch (draws.integer(0, 2)) {
    case 0:
      return grayscale(image);
    case 1:
      return solarize(image, 128);
    default:
      image = gaussian_blur(image, draws.uniform(0.1, 2.0));
  }
}

void color_jitter(const std::vector<double>& strength, Draws& draws, Image& image) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (size_t i = 3; i > 0; --i)
    std::swap(order[i], order[static_cast<size_t>(draws.integer(0, static_cast<int64_t>(i)))]);
  const auto factor = [&](size_t which) {
    return draws.uniform(std::max(0.0, 1 - strength[which]), 1 + strength[which]);
  };
  for (const int step : order) {
    const size_t which = static_cast<size_t>(step);
    if (which >= strength.size() || strength[which] == 0) continue;
    if (step == 0) adjust_brightness(image, factor(which));
    if (step == 1) adjust_contrast(image, factor(which));
    if (step == 2) adjust_saturation(image, factor(which));
    if (step == 3) adjust_hue(image, draws.uniform(-strength[which], strength[which]));
  }
}

}  // namespace tessera::data
