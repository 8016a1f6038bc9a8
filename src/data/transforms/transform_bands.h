// Images of other than three channels: grey ones, and satellites' and microscopes' bands.
#pragma once

#include <functional>
#include <memory>

#include "data/transforms/transform.h"

namespace tessera::data {

// Makes the transform of a colour image; it is called with the mean and deviation of three channels, and with
// joint fields or without.
using MakeColourTransform =
    std::function<std::shared_ptr<const Transform>(const Preprocess& preprocess, const JointFields& joint)>;

// "image", f32 [channels, height, width], where preprocess.mean has as many numbers; and the joint fields. Of one
// channel it is the luma of a colour image; of more the bands of a TIFF, three of which at a time go through
// a colour transform with the same draws. Augmentations of colour are refused for more than one: they know
// red, green and blue. `erase` comes last, over all channels.
std::shared_ptr<const Transform> make_bands_transform(const Preprocess& preprocess, const JointFields& joint,
                                                      const AugmentConfig& augment,
                                                      const MakeColourTransform& make);

}  // namespace tessera::data
