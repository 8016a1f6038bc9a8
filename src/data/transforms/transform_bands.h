// Images with one channel or more than three: greyscale, and bands of satellites and microscopes.
#pragma once

#include <functional>
#include <memory>

#include "data/transforms/transform.h"

namespace tessera::data {

// Makes the transform of a colour image. Its arguments are the mean and deviation of three channels, with or
// without joint fields.
using MakeColourTransform =
    std::function<std::shared_ptr<const Transform>(const Preprocess& preprocess, const JointFields& joint)>;

// Makes "image", f32 [channels, height, width], with one channel per number of preprocess.mean, and the joint
// fields. One channel is the luma of a colour image. More are the bands of a TIFF: each group of three passes
// through a colour transform with the same draws. For more than one channel, colour augmentations are usage
// errors because they require red, green and blue. `erase` comes last, over all channels.
std::shared_ptr<const Transform> make_bands_transform(const Preprocess& preprocess, const JointFields& joint,
                                                      const AugmentConfig& augment,
                                                      const MakeColourTransform& make);

}  // namespace tessera::data
