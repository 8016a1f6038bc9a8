// Augmentations of a training image, between its crop and its normalisation.
#pragma once

#include <optional>
#include <vector>

#include "data/base/draws.h"
#include "data/transforms/augment_policy.h"
#include "data/transforms/transform.h"
#include "data/transforms/view_augment.h"
#include "io/images/image.h"

namespace tessera::data {

// The pixel augmentations of an AugmentConfig, ready to apply: RandAugment or AutoAugment, 3-Augment, colour
// jitter, in this order (timm's and DeiT III's); or those of a ViewAugment.
class PixelAugment {
 public:
  // `interpolation` and the mean colour (which fills outside pixels) come from the preprocessing. Throws
  // usage errors.
  PixelAugment(const AugmentConfig& config, const Preprocess& preprocess);
  PixelAugment(const ViewAugment& config, const Preprocess& preprocess);
  bool enabled() const { return policy_ || three_augment_ || !jitter_.empty() || view_; }
  void apply(Draws& draws, Image& image) const;

 private:
  std::optional<Policy> policy_;
  OpSettings settings_;
  bool three_augment_;
  std::vector<double> jitter_;
  std::optional<ViewAugment> view_;
};

// Applies one of: gray, solarize at 128, blur with a radius of 0.1 … 2. (Touvron et al., "DeiT III", 2022.)
void three_augment(Draws& draws, Image& image);

// Changes brightness, contrast and saturation by factors of max(0, 1 - x) … 1 + x and shifts the hue by -x …
// x, in random order, as torchvision's ColorJitter does. `strength`: 3 or 4 numbers.
void color_jitter(const std::vector<double>& strength, Draws& draws, Image& image);

}  // namespace tessera::data
