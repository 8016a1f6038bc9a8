// Overlays with the names of their classes: objects and masks over an image, and a legend under it.
#pragma once

#include <string>
#include <vector>

#include "data/sources/annotated_source.h"
#include "io/images/image.h"

namespace tessera::report {

// Draws objects over the image, each with its class and score ("star 97 %"), and adds a legend of their classes.
// `scores` are shares, one an object.
Image labelled_objects(const Image& image, const std::vector<data::DrawnObject>& objects,
                       const std::vector<double>& scores, const std::vector<std::string>& classes);

// Blends the mask over the image, and adds a legend of the classes that it has.
Image labelled_mask(const Image& image, const Image& mask, const std::vector<std::string>& classes);

}  // namespace tessera::report
