#include "data/transform.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/geometry.h"

namespace tessera::data {

namespace {

void check_preprocess(const Preprocess& p, int64_t height, int64_t width) {
  constexpr int64_t kLargest = 16384;
  if (height < 1 || width < 1 || height > kLargest || width > kLargest)
    fail_usage("input size is ", height, "x", width, ", each side must be 1 to ", kLargest);
  if (!(p.crop > 0 && p.crop <= 1)) fail_usage("crop is ", p.crop, ", must be above 0 and at most 1");
  if (p.mean.size() != 3) fail_usage("mean has ", p.mean.size(), " numbers, must be 3");
  if (p.std.size() != 3) fail_usage("std has ", p.std.size(), " numbers, must be 3");
  for (const double s : p.std)
    if (!(s > 0)) fail_usage("std holds ", s, ", must be positive");
}

// What both transforms share: preprocessing in the form that the pixels need.
class Base : public Transform {
 public:
  Base(const Preprocess& preprocess, int64_t height, int64_t width)
      : interpolation_(parse_interpolation(preprocess.interpolation)),
        crop_mode_(parse_crop_mode(preprocess.crop_mode)),
        crop_(preprocess.crop),
        output_{static_cast<int>(height), static_cast<int>(width)},
        normalisation_((check_preprocess(preprocess, height, width), preprocess.mean), preprocess.std) {
    decode_.apply_exif = preprocess.apply_exif;
    for (size_t c = 0; c < 3; ++c)
      border_[c] = crop_mode_ == CropMode::border
                       ? static_cast<uint8_t>(std::clamp(round_half_even(255 * preprocess.mean[c]), 0, 255))
                       : uint8_t{0};
  }
  int64_t height() const override { return output_.height; }
  int64_t width() const override { return output_.width; }

 protected:
  // The picture's size as it will be decoded.
  Extent extent_of(const RawSample& sample, int* orientation = nullptr) const {
    if (const auto* image = std::get_if<Image>(&sample.picture)) return {image->height, image->width};
    const ImageInfo info = image_info(std::get<std::vector<std::byte>>(sample.picture), sample.name);
    const int turn = decode_.apply_exif ? info.orientation : 1;
    if (orientation) *orientation = turn;
    return turn >= 5 ? Extent{info.width, info.height} : Extent{info.height, info.width};
  }

  // The whole picture; decoded into `memory` where it is encoded.
  const Image& picture_of(const RawSample& sample, Image& memory) const {
    if (const auto* image = std::get_if<Image>(&sample.picture)) return *image;
    memory = decode_image(std::get<std::vector<std::byte>>(sample.picture), sample.name, decode_);
    return memory;
  }

  void test_crop(const RawSample& sample, bool mirrored, float* out) const {
    static thread_local Image memory;
    const Image& image = picture_of(sample, memory);
    const Extent resized = test_size({image.height, image.width}, output_, crop_, crop_mode_);
    const Placement place = centre(resized, output_);
    ResizePlan plan{{0, 0, static_cast<double>(image.width), static_cast<double>(image.height)},
                    resized.width,
                    resized.height,
                    interpolation_,
                    place.window,
                    mirrored};
    if (place.window.width == output_.width && place.window.height == output_.height) {
      resize_planes(image, plan, normalisation_, out);
      return;
    }
    static thread_local std::vector<uint8_t> part;
    part.resize(size_t{3} * static_cast<size_t>(place.window.width) *
                static_cast<size_t>(place.window.height));
    resize_planes(image, plan, part.data());
    const int left = mirrored ? output_.width - place.left - place.window.width : place.left;
    surround(part, {left, place.top, place.window.width, place.window.height}, out);
  }

  // Planes of bytes at `box` of the output, the border's colour around them.
  void surround(const std::vector<uint8_t>& part, const Box& box, float* out) const {
    const uint8_t* from = part.data();
    for (int c = 0; c < 3; ++c) {
      const float* values = normalisation_.table(c);
      float* plane = out + static_cast<size_t>(c) * pixels();
      std::fill(plane, plane + pixels(), values[border_[static_cast<size_t>(c)]]);
      for (int y = 0; y < box.height; ++y) {
        float* row = plane + static_cast<ptrdiff_t>(box.top + y) * output_.width + box.left;
        for (int x = 0; x < box.width; ++x) row[x] = values[*from++];
      }
    }
  }

  size_t pixels() const { return static_cast<size_t>(output_.height) * static_cast<size_t>(output_.width); }

  Interpolation interpolation_;
  CropMode crop_mode_;
  double crop_;
  Extent output_;
  DecodeOptions decode_;
  Normalisation normalisation_;
  std::array<uint8_t, 3> border_{};
};

class EvalTransform final : public Base {
 public:
  using Base::Base;
  void apply(const RawSample& sample, RandomStream&, float* out) const override {
    test_crop(sample, false, out);
  }
};

class TrainTransform final : public Base {
 public:
  TrainTransform(const Preprocess& preprocess, const AugmentConfig& augment)
      : Base(preprocess, preprocess.size, preprocess.size), augment_(augment) {
    check_augment();
    fast_ = augment.decode == "fast";
  }

  void apply(const RawSample& sample, RandomStream& random, float* out) const override {
    StreamDraws draws(random);
    if (augment_.crop == "random_resized") {
      random_resized(sample, draws, out);
    } else if (augment_.crop == "padded") {
      padded(sample, draws, out);
    } else {
      test_crop(sample, flipped(draws), out);
    }
  }

 private:
  void check_augment() const {
    const AugmentConfig& a = augment_;
    if (a.crop != "random_resized" && a.crop != "padded" && a.crop != "centre")
      fail_usage("unknown augment crop '", a.crop, "', must be random_resized, padded or centre");
    if (a.decode != "exact" && a.decode != "fast")
      fail_usage("augment decode is '", a.decode, "', must be exact or fast");
    if (a.padding_mode != "constant" && a.padding_mode != "reflect")
      fail_usage("padding_mode is '", a.padding_mode, "', must be constant or reflect");
    if (a.scale.size() != 2 || !(a.scale[0] > 0 && a.scale[0] <= a.scale[1] && a.scale[1] <= 1))
      fail_usage("augment scale must be two numbers, 0 < low <= high <= 1");
    if (a.ratio.size() != 2 || !(a.ratio[0] > 0 && a.ratio[0] <= a.ratio[1]))
      fail_usage("augment ratio must be two numbers, 0 < low <= high");
    if (a.padding < 0 || a.padding > 4096)
      fail_usage("augment padding is ", a.padding, ", must be 0 to 4096");
    if (!(a.flip >= 0 && a.flip <= 1)) fail_usage("augment flip is ", a.flip, ", must be 0 to 1");
  }

  bool flipped(Draws& draws) const { return draws.uniform() < augment_.flip; }

  void random_resized(const RawSample& sample, Draws& draws, float* out) const {
    int orientation = 1;
    const Extent size = extent_of(sample, &orientation);
    const Box box = random_resized_crop(size, augment_.scale, augment_.ratio, draws);
    static thread_local Image crop;
    FloatBox inside{0, 0, static_cast<double>(box.width), static_cast<double>(box.height)};
    if (const auto* image = std::get_if<Image>(&sample.picture)) {
      crop = cut(*image, box);
    } else {
      DecodeOptions options = decode_;
      if (fast_ && orientation == 1) options.scale = scale_for(box);
      decode_image_crop(std::get<std::vector<std::byte>>(sample.picture), sample.name, box, options, crop);
      if (options.scale > 1 && crop.width < box.width) inside = scaled_box(box, options.scale, crop);
    }
    resize_planes(crop,
                  {inside,
                   output_.width,
                   output_.height,
                   interpolation_,
                   {0, 0, output_.width, output_.height},
                   flipped(draws)},
                  normalisation_, out);
  }

  // The smallest DCT scale that still gives at least as many pixels as are wanted.
  int scale_for(const Box& box) const {
    int scale = 8;
    while (scale > 1 && (box.width < scale * output_.width || box.height < scale * output_.height))
      scale /= 2;
    return scale;
  }

  // Where the box lies within its scaled pixels, which begin and end at whole ones.
  static FloatBox scaled_box(const Box& box, int scale, const Image& crop) {
    const double left = static_cast<double>(box.left % scale) / scale,
                 top = static_cast<double>(box.top % scale) / scale;
    return {left, top, std::min<double>(crop.width, left + static_cast<double>(box.width) / scale),
            std::min<double>(crop.height, top + static_cast<double>(box.height) / scale)};
  }

  void padded(const RawSample& sample, Draws& draws, float* out) const {
    static thread_local Image memory;
    static thread_local std::vector<uint8_t> planes;
    const Image& image = picture_of(sample, memory);
    // The short side becomes the output's, so that both sides cover it.
    const Extent have{image.height, image.width};
    const Extent size = have == output_ ? have : resize_short_side(have, output_.width);
    planes.resize(size_t{3} * static_cast<size_t>(size.height) * static_cast<size_t>(size.width));
    resize_planes(image,
                  {{0, 0, static_cast<double>(image.width), static_cast<double>(image.height)},
                   size.width,
                   size.height,
                   interpolation_,
                   {0, 0, size.width, size.height},
                   false},
                  planes.data());
    const int padding = static_cast<int>(augment_.padding);
    const int top = static_cast<int>(draws.integer(0, size.height + 2 * padding - output_.height)) - padding;
    const int left = static_cast<int>(draws.integer(0, size.width + 2 * padding - output_.width)) - padding;
    cut_padded(planes.data(), size, top, left, flipped(draws), out);
  }

  // The output whose corner lies at (top, left) of the planes, which may be outside.
  void cut_padded(const uint8_t* planes, Extent size, int top, int left, bool mirrored, float* out) const {
    const bool mirror_edges = augment_.padding_mode == "reflect";
    for (int c = 0; c < 3; ++c) {
      const uint8_t* plane = planes + static_cast<ptrdiff_t>(c) * size.height * size.width;
      const float* values = normalisation_.table(c);
      for (int y = 0; y < output_.height; ++y) {
        const int from_y = mirror_edges ? reflect(top + y, size.height) : top + y;
        const bool row_inside = from_y >= 0 && from_y < size.height;
        const uint8_t* row = plane + static_cast<ptrdiff_t>(row_inside ? from_y : 0) * size.width;
        for (int x = 0; x < output_.width; ++x) {
          const int wanted = left + (mirrored ? output_.width - 1 - x : x);
          const int from_x = mirror_edges ? reflect(wanted, size.width) : wanted;
          const bool inside = row_inside && from_x >= 0 && from_x < size.width;
          *out++ = values[inside ? row[from_x] : 0];
        }
      }
    }
  }

  AugmentConfig augment_;
  bool fast_ = false;
};

}  // namespace

std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess, int64_t height,
                                                     int64_t width) {
  return std::make_shared<EvalTransform>(preprocess, height, width);
}

std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess) {
  return make_eval_transform(preprocess, preprocess.size, preprocess.size);
}

std::shared_ptr<const Transform> make_train_transform(const Preprocess& preprocess,
                                                      const AugmentConfig& augment) {
  return std::make_shared<TrainTransform>(preprocess, augment);
}

}  // namespace tessera::data
