// From a raw sample to its fields: decode, crop, resize, flip, augment, normalise. Masks and boxes follow.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/base/field.h"
#include "data/base/source.h"
#include "data/transforms/augment_erase.h"
#include "data/transforms/resize.h"

namespace tessera::data {

// Conversion of images to tensors at test time; stored with the weights, so that predict does the same.
struct Preprocess {
  int64_t size = 224;   // images enter the model as [channels, size, size]
  double crop = 0.875;  // test crop: the short side is resized to size / crop, then centre crop
  std::string interpolation = "bicubic";
  std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
  std::string crop_mode = "center";  // see visit and geometry.h
  bool apply_exif = true;
  template <class V>
  void visit(V& v) {
    v("size", size, "side of the square input in pixels");
    v("crop", crop, "test crop ratio: the short side becomes size / crop");
    v("interpolation", interpolation, "bicubic, bilinear or lanczos, antialiased as Pillow does");
    v("mean", mean, "per channel, of values in [0, 1]; as many as the image has channels");
    v("std", std, "per channel");
    v("crop_mode", crop_mode,
      "test crop: center, center_floor (odd margins are rounded down), squash (proportions are lost), border "
      "(padded, nothing is cut) or pad (LLaVA: "
      "first to "
      "a square)");
    v("apply_exif", apply_exif, "orient images by their EXIF tag, as viewers show them");
  }
};

// Training-time augmentation of one image.
struct AugmentConfig {
  // random_resized; padded (short side to size, padded, random crop: usual for CIFAR, and with reflect DeiT
  // III's simple random crop); center (as at test time)
  std::string crop = "random_resized";
  std::vector<double> scale = {0.08, 1.0}, ratio = {0.75, 4.0 / 3};
  int64_t padding = 4;                    // `padded`: pixels on each side before the random crop
  std::string padding_mode = "constant";  // constant (black) or reflect
  double flip = 0.5;
  std::string auto_augment;          // RandAugment or AutoAugment, in timm's notation: "rand-m9-mstd0.5-inc1"
  bool three_augment = false;        // DeiT III: one of gray, solarize, blur
  std::vector<double> color_jitter;  // brightness, contrast, saturation and optionally hue
  EraseConfig erase;
  std::string decode = "exact";  // exact, or fast (JPEG scaled in the DCT)
  template <class V>
  void visit(V& v) {
    v("crop", crop, "random_resized, padded or center");
    v("scale", scale, "random_resized: share of the area");
    v("ratio", ratio, "random_resized: aspect ratio");
    v("padding", padding, "padded: pixels on each side");
    v("padding_mode", padding_mode, "padded: constant or reflect");
    v("flip", flip, "probability of a horizontal flip");
    v("auto_augment", auto_augment, "RandAugment or AutoAugment in timm's notation, as rand-m9-mstd0.5-inc1");
    v("three_augment", three_augment, "one of grayscale, solarize and Gaussian blur (DeiT III)");
    v("color_jitter", color_jitter, "brightness, contrast, saturation[, hue]: factors from 1 - x to 1 + x");
    v("erase", erase, "random erasing");
    v("decode", decode, "exact, or fast (JPEG scaled while decoding)");
  }
};

// Converts a sample to its fields. Stateless: threads share it.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual const std::vector<Field>& fields() const = 0;
  // Writes the fields in order, one slot each. `random` is this sample's own stream. Throws an error that
  // names the sample if it lacks the input of a field (a mask, a caption).
  virtual void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const = 0;
};

// Fields that follow the image's geometry.
struct JointFields {
  bool mask = false;         // "mask", u8 [height, width]: classes, kIgnoredPixel outside the image
  int64_t most_boxes = 0;    // > 0: "boxes", f32 [most_boxes, 5], ragged: left, top, right, bottom, class
  double least_visible = 0;  // a box must keep this share of its area or is dropped
};
inline constexpr uint8_t kIgnoredPixel = 255;

// Makes "image", f32 [channels, height, width], normalised, with one channel per number of preprocess.mean;
// and the joint fields. Throws a usage error that names an invalid key. This includes an augmentation that
// moves pixels in ways that masks and boxes cannot follow.
std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess,
                                                     const JointFields& joint = {});
// The same for an output of another size than preprocess.size squared.
std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess, int64_t height,
                                                     int64_t width, const JointFields& joint = {});
std::shared_ptr<const Transform> make_train_transform(const Preprocess& preprocess,
                                                      const AugmentConfig& augment,
                                                      const JointFields& joint = {});

// Makes "label", i64 []: the sample's class; or if `multi_label`, "targets", f32 [classes]: 1 for each of its
// classes and 0 for the others.
std::shared_ptr<const Transform> make_label_transform(int64_t classes, bool multi_label);

// Joins the fields of all transforms. Each draws from the sample's stream after the previous ones.
std::shared_ptr<const Transform> join_transforms(std::vector<std::shared_ptr<const Transform>> parts);

// Makes `count` views of a sample, each with its own draws; fields "image_0", "image_1", ….
std::shared_ptr<const Transform> make_views(std::shared_ptr<const Transform> transform, int64_t count);

// Images with one channel or more than three: greyscale, and bands from satellites and microscopes.

// Makes the transform of a colour image. Its arguments are the mean and deviation of three channels, with or
// without joint fields.
using MakeColourTransform =
    std::function<std::shared_ptr<const Transform>(const Preprocess& preprocess, const JointFields& joint)>;

// Makes "image", f32 [channels, height, width], with one channel per number of preprocess.mean, and the joint
// fields. One channel is the luma of a colour image. Several are the bands of a TIFF: each group of three
// passes through a colour transform with the same draws. For more than one channel, colour augmentations are
// usage errors because they require red, green and blue. `erase` comes last, over all channels.
std::shared_ptr<const Transform> make_bands_transform(const Preprocess& preprocess, const JointFields& joint,
                                                      const AugmentConfig& augment,
                                                      const MakeColourTransform& make);

}  // namespace tessera::data
