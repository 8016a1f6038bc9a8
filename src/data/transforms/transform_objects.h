// Images with boxes and masks for detectors: resized as a whole, cropped or padded to one size. Objects
// follow.
#pragma once

#include <memory>
#include <vector>

#include "data/base/objects.h"
#include "data/transforms/transform.h"

namespace tessera::data {

struct ObjectGeometry {
  // Sizes of the short side, reduced if the long side would exceed `longest`. Training draws one, testing
  // uses the last. Empty: the whole image is fitted into the output.
  std::vector<int64_t> shortest = {};
  int64_t longest = 0;
  // Large-scale jitter (Ghiasi et al. 2021): the image is fitted to the output times a factor drawn from
  // [low, high], and cropped at random. Empty: none.
  std::vector<double> jitter = {};
  double flip = 0.5;
  bool training = false;  // else no random choices
  bool masks = false;
  int64_t most = 1000;  // maximum number of objects in an image
};

// Makes "image" f32 [3, side, side], normalised, 0 outside the image; and "extent" i64 [4]: height and width
// of the visible part, then those of the original image. In training also "boxes" f32 [most, 5], ragged:
// left, top, right, bottom, class; and with `masks` "masks" u8 [most, side, side], ragged, 1 on the object.
// Drops crowds, invisible objects, and with `masks` objects without an outline. A box is that of the outline if one exists. `source` supplies the
// objects; without one the transform only describes its fields.
std::shared_ptr<const Transform> make_object_transform(const Preprocess& preprocess,
                                                       const ObjectGeometry& geometry,
                                                       std::shared_ptr<const Source> source);

// Returns the view of an image at test time, without random choices.
ImageView whole_view(Extent image, int64_t side, const ObjectGeometry& geometry);
// Writes a view of the image, normalised, to planes [3, out_height, out_width]; 0 outside the image.
void write_view(const Image& image, const ImageView& view, Interpolation interpolation,
                const Normalisation& normalisation, float* out);

}  // namespace tessera::data
