// Images with boxes and masks for detectors: resized as a whole, cut or filled up to one size, objects along.
#pragma once

#include <memory>
#include <vector>

#include "data/base/objects.h"
#include "data/transforms/transform.h"

namespace tessera::data {

struct ObjectGeometry {
  // One of these is drawn, the last is taken at test time: the short side, as long as the long one stays within
  // `longest`. Empty: the whole image fits the output.
  std::vector<int64_t> shortest = {};
  int64_t longest = 0;
  // Large-scale jitter (Ghiasi et al. 2021): the image fits the output times a factor drawn from [low, high], and is
  // cut at random. Empty: none.
  std::vector<double> jitter = {};
  double flip = 0.5;
  bool training = false;  // else nothing is drawn
  bool masks = false;
  int64_t most = 1000;  // objects of an image
};

// Fields: "image" f32 [3, side, side], normalised, 0 where the image does not reach; "extent" i64 [4]: height and width
// of what is seen of the image, then those of the image itself; in training "boxes" f32 [most, 5], ragged: left, top,
// right, bottom, class, and with `masks` "masks" u8 [most, side, side], ragged, 1 on the object. Crowds, and objects of
// which nothing is seen, are left out; a box is that of the outline where there is one.
// `source` is where the samples come from; without one the transform only says its fields.
std::shared_ptr<const Transform> make_object_transform(const Preprocess& preprocess,
                                                       const ObjectGeometry& geometry,
                                                       std::shared_ptr<const Source> source);

// The view of an image at test time, without draws.
ImageView whole_view(Extent image, int64_t side, const ObjectGeometry& geometry);
// The image as a view shows it, normalised, into planes [3, out_height, out_width]; 0 around it.
void write_view(const Image& image, const ImageView& view, Interpolation interpolation,
                const Normalisation& normalisation, float* out);

}  // namespace tessera::data
