// The augmentations of a training picture after its crop and before its normalisation.
#pragma once

#include <optional>
#include <vector>

#include "data/base/draws.h"
#include "data/transforms/augment_policy.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"

namespace tessera::data {

// What AugmentConfig says about the picture's pixels, ready to apply: RandAugment or AutoAugment, 3-Augment,
// colour jitter, in this order (timm's and DeiT III's).
class PixelAugment {
 public:
  // `interpolation` and the mean colour (which fills in from outside) are those of the preprocessing. Usage
  // errors.
  PixelAugment(const AugmentConfig& config, const Preprocess& preprocess);
  bool enabled() const { return policy_ || three_augment_ || !jitter_.empty(); }
  void apply(Draws& draws, Image& image) const;

 private:
  std::optional<Policy> policy_;
  OpSettings settings_;
  bool three_augment_;
  std::vector<double> jitter_;
};

// One of gray, solarized at 128, blurred with a radius of 0.1 … 2. (Touvron et al., "DeiT III", 2022.)
void three_augment(Draws& draws, Image& image);

// Brightness, contrast, saturation by factors of max(0, 1 - x) … 1 + x and a hue shift of -x … x, in random
// order, as torchvision's ColorJitter. `strength`: 3 or 4 numbers.
void color_jitter(const std::vector<double>& strength, Draws& draws, Image& image);

}  // namespace tessera::data
