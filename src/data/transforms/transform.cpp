#include "data/transforms/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "data/base/geometry.h"
#include "data/base/geometry_map.h"
#include "data/transforms/augment.h"

namespace tessera::data {
namespace {

void check_preprocess(const Preprocess& p, int64_t height, int64_t width) {
  constexpr int64_t kLargest = 16384;
  if (height < 1 || width < 1 || height > kLargest || width > kLargest)
    fail_usage("input size is ", height, "x", width, ", each side must be 1 to ", kLargest);
  if (!(p.crop > 0 && p.crop <= 1)) fail_usage("crop is ", p.crop, ", must be above 0 and at most 1");
  if (static_cast<double>(std::max(height, width)) / p.crop > kLongestSide)
    fail_usage("crop is ", p.crop, ": images would be enlarged to more than ", kLongestSide, " pixels");
  if (p.std.size() != 3) fail_usage("std has ", p.std.size(), " numbers, must be 3 as mean has");
  for (const double s : p.std)
    if (!(s > 0)) fail_usage("std holds ", s, ", must be positive");
}

void check_augment(const AugmentConfig& a) {
  if (a.crop != "random_resized" && a.crop != "padded" && a.crop != "center")
    fail_usage("unknown augment crop '", a.crop, "', must be random_resized, padded or center");
  if (a.decode != "exact" && a.decode != "fast")
    fail_usage("augment decode is '", a.decode, "', must be exact or fast");
  if (a.padding_mode != "constant" && a.padding_mode != "reflect")
    fail_usage("padding_mode is '", a.padding_mode, "', must be constant or reflect");
  if (a.scale.size() != 2 || !(a.scale[0] > 0 && a.scale[0] <= a.scale[1] && a.scale[1] <= 1))
    fail_usage("augment scale must be two numbers, 0 < low <= high <= 1");
  if (a.ratio.size() != 2 || !(a.ratio[0] > 0 && a.ratio[0] <= a.ratio[1]))
    fail_usage("augment ratio must be two numbers, 0 < low <= high");
  if (a.padding < 0 || a.padding > 4096) fail_usage("augment padding is ", a.padding, ", must be 0 to 4096");
  if (!(a.flip >= 0 && a.flip <= 1)) fail_usage("augment flip is ", a.flip, ", must be 0 to 1");
  check_erase(a.erase);
}

FloatBox whole(const Image& image) {
  return {0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
}

// Reusable images of one thread.
struct Memory {
  Image decoded, placed;
};
Memory& memory() {
  static thread_local Memory m;
  return m;
}

// Shared by both transforms: the preprocessing in the form for pixels, and the test crop.
class Base : public Transform {
 public:
  Base(const Preprocess& preprocess, int64_t height, int64_t width, const JointFields& joint)
      : joint_(joint),
        interpolation_(parse_interpolation(preprocess.interpolation)),
        pads_(preprocess.crop_mode == "pad"),
        floors_(preprocess.crop_mode == "center_floor"),
        crop_mode_(pads_ || floors_ ? CropMode::center : parse_crop_mode(preprocess.crop_mode)),
        crop_(preprocess.crop),
        output_{static_cast<int>(height), static_cast<int>(width)},
        normalisation_((check_preprocess(preprocess, height, width), preprocess.mean), preprocess.std) {
    decode_.apply_exif = preprocess.apply_exif;
    for (size_t c = 0; c < 3 && preprocess.crop_mode == "border"; ++c)
      border_[c] = static_cast<uint8_t>(std::clamp(round_half_even(255 * preprocess.mean[c]), 0, 255));
    for (size_t c = 0; c < 3 && pads_; ++c)  // truncated, as in LLaVA's code
      border_[c] = static_cast<uint8_t>(std::clamp(255 * preprocess.mean[c], 0.0, 255.0));
    fields_.push_back({"image", DType::f32, {3, height, width}});
    if (joint.mask) fields_.push_back({"mask", DType::u8, {height, width}});
    if (joint.most_boxes > 0) fields_.push_back({"boxes", DType::f32, {joint.most_boxes, 5}, true});
  }
  const std::vector<Field>& fields() const override { return fields_; }

 protected:
  // How an output is computed: `image` is resized by `plan` and placed at (left, top), with the border's
  // colour elsewhere. `map` is this geometry for masks and boxes.
  struct Source {
    const Image* image = nullptr;
    ResizePlan plan;
    int left = 0, top = 0;
    GeometryMap map = {};
  };

  // Writes the fields other than the image; `map` is the image's geometry.
  void write_joint(const RawSample& sample, const GeometryMap& map, std::span<const Slot> out) const {
    size_t slot = 1;
    if (joint_.mask) {
      const auto& mask = sample.annotation.mask;
      check(mask.has_value(), sample.name, ": has no mask");
      naming(sample, [&] { map_mask(*mask, map, kIgnoredPixel, out[slot].as<uint8_t>()); });
      ++slot;
    }
    if (joint_.most_boxes > 0) write_boxes(sample, map, *out[slot].rows);
  }

  void write_boxes(const RawSample& sample, const GeometryMap& map, std::vector<std::byte>& rows) const {
    const auto boxes = map_instances(sample.annotation.instances, map, joint_.least_visible);
    check(std::ssize(boxes) <= joint_.most_boxes, sample.name, ": has ", boxes.size(),
          " boxes, must be at most ", joint_.most_boxes);
    for (const Instance& box : boxes) {
      const std::array values = {static_cast<float>(box.left), static_cast<float>(box.top),
                                 static_cast<float>(box.right), static_cast<float>(box.bottom),
                                 static_cast<float>(box.label)};
      const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
      rows.insert(rows.end(), bytes, bytes + sizeof(values));
    }
  }

  // Returns the map of an image that is resized as a whole; pixel (left, top) of the resized image is the
  // output's first.
  GeometryMap whole_map(Extent picture, Extent resized, int left, int top, bool mirrored) const {
    return {
        {0, static_cast<double>(picture.width), resized.width, left, output_.width, picture.width, mirrored},
        {0, static_cast<double>(picture.height), resized.height, top, output_.height, picture.height}};
  }

  bool fills(const Source& s) const {
    return s.plan.window.width == output_.width && s.plan.window.height == output_.height;
  }

  // Returns the output as an image.
  const Image& picture_of(const RawSample& sample, const Source& s) const {
    Image& placed = memory().placed;
    placed = naming(sample, [&] { return resize(*s.image, s.plan); });
    if (fills(s)) return placed;
    Image out(output_.width, output_.height);
    for (size_t i = 0; i < out.pixels.size(); i += 3)
      std::copy(border_.begin(), border_.end(), &out.pixels[i]);
    for (int y = 0; y < placed.height; ++y)
      std::memcpy(out.row(s.top + y) + 3 * s.left, placed.row(y), 3 * static_cast<size_t>(placed.width));
    return placed = std::move(out);
  }

  void write(const RawSample& sample, const Source& s, float* out) const {
    if (fills(s))
      naming(sample, [&] { resize_planes(*s.image, s.plan, normalisation_, out); });
    else
      normalise(picture_of(sample, s), normalisation_, out);
  }

  // Returns the decoded size of the image, and sets the orientation to apply.
  Extent extent_of(const RawSample& sample, int& orientation) const {
    orientation = 1;
    if (const auto* image = std::get_if<Image>(&sample.picture)) return {image->height, image->width};
    const ImageInfo info = image_info(std::get<std::vector<std::byte>>(sample.picture), sample.name);
    orientation = applied_orientation(info, decode_);
    return orientation >= 5 ? Extent{info.width, info.height} : Extent{info.height, info.width};
  }

  // Adds the sample's name to errors about an image's size.
  template <class Work>
  static auto naming(const RawSample& sample, const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (const Error& error) {
      fail(sample.name, ": ", error.what());
    }
  }

  // Returns the whole image; encoded ones are decoded into this thread's memory.
  const Image& decoded(const RawSample& sample) const {
    if (const auto* image = std::get_if<Image>(&sample.picture)) return *image;
    memory().decoded = decode_image(std::get<std::vector<std::byte>>(sample.picture), sample.name, decode_);
    return memory().decoded;
  }

  // Returns the image in the middle of a square of the border's colour, as LLaVA's expand2square.
  const Image& padded_to_square(const Image& image, const RawSample& sample) const {
    constexpr int kLongest = 1 << 14;
    if (image.width == image.height) return image;
    const int side = std::max(image.width, image.height);
    if (side > kLongest)
      fail(sample.name, ": is ", image.width, " x ", image.height, " pixels, must be at most ", kLongest,
           " along a side to be padded to a square");
    Image square(side, side);
    for (size_t i = 0; i < square.pixels.size(); i += 3)
      std::copy(border_.begin(), border_.end(), &square.pixels[i]);
    const int left = (side - image.width) / 2, top = (side - image.height) / 2;
    const auto step = static_cast<size_t>(image.channels);
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x)
        for (size_t c = 0; c < 3; ++c)
          square.row(top + y)[3 * static_cast<size_t>(left + x) + c] =
              image.row(y)[step * static_cast<size_t>(x) + std::min(c, step - 1)];
    return memory().placed = std::move(square);
  }

  Source test_crop(const RawSample& sample, bool mirrored) const {
    const Image& own = decoded(sample);
    const Image& image = pads_ ? padded_to_square(own, sample) : own;
    const Extent size = naming(sample, [&] {
      return test_size({image.height, image.width}, output_, crop_, crop_mode_);
    });
    Placement place = centre(size, output_);
    if (floors_) {
      place.window.left = std::max(0, size.width - output_.width) / 2;
      place.window.top = std::max(0, size.height - output_.height) / 2;
    }
    const int left = mirrored ? output_.width - place.left - place.window.width : place.left;
    GeometryMap map = whole_map({own.height, own.width}, size, place.window.left - place.left,
                                place.window.top - place.top, mirrored);
    const int across = (image.width - own.width) / 2, down = (image.height - own.height) / 2;
    map.x.source_from = -across, map.x.source_to = image.width - across;
    map.y.source_from = -down, map.y.source_to = image.height - down;
    return {&image,
            {whole(image), size.width, size.height, interpolation_, place.window, mirrored},
            left,
            place.top,
            map};
  }

  JointFields joint_;
  std::vector<Field> fields_;
  Interpolation interpolation_;
  bool pads_, floors_;
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
  void apply(const RawSample& sample, RandomStream&, std::span<const Slot> out) const override {
    const Source source = test_crop(sample, false);
    write(sample, source, out[0].as<float>());
    write_joint(sample, source.map, out);
  }
};

class TrainTransform final : public Base {
 public:
  // `pixels`: made of an AugmentConfig or a ViewAugment.
  template <class Pixels>
  TrainTransform(const Preprocess& preprocess, const AugmentConfig& augment, const JointFields& joint,
                 const Pixels& pixels)
      : Base(preprocess, preprocess.size, preprocess.size, joint),
        augment_((check_augment(augment), augment)),
        pixels_(pixels, preprocess) {
    if (fields_.size() > 1 && !augment.auto_augment.empty())
      fail_usage("augment.auto_augment = \"", augment.auto_augment,
                 "\" rotates and shears images, which masks and boxes do not follow: leave it out");
  }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> slots) const override {
    StreamDraws draws(random);
    float* out = slots[0].as<float>();
    GeometryMap map;
    if (augment_.crop == "padded") {
      finish(padded(sample, draws, map), draws, out);
    } else {
      const Source source =
          augment_.crop == "center" ? test_crop(sample, flipped(draws)) : random_resized(sample, draws);
      map = source.map;
      if (pixels_.enabled())
        finish(picture_of(sample, source), draws, out);
      else
        write(sample, source, out);
    }
    if (augment_.erase.probability > 0) erase(augment_.erase, 3, output_.height, output_.width, draws, out);
    write_joint(sample, map, slots);
  }

 private:
  bool flipped(Draws& draws) const { return draws.fraction() < augment_.flip; }

  void finish(const Image& picture, Draws& draws, float* out) const {
    if (!pixels_.enabled()) return normalise(picture, normalisation_, out);
    Image augmented = picture;
    pixels_.apply(draws, augmented);
    normalise(augmented, normalisation_, out);
  }

  Source random_resized(const RawSample& sample, Draws& draws) const {
    int orientation = 1;
    const Extent size = extent_of(sample, orientation);
    const Box box = random_resized_crop(size, augment_.scale, augment_.ratio, draws);
    const bool mirrored = flipped(draws);
    Image& crop = memory().decoded;
    FloatBox inside{0, 0, static_cast<double>(box.width), static_cast<double>(box.height)};
    if (const auto* image = std::get_if<Image>(&sample.picture)) {
      crop = cut(*image, box);
    } else {
      DecodeOptions options = decode_;
      if (augment_.decode == "fast" && orientation == 1) options.scale = scale_for(box);
      decode_image_crop(std::get<std::vector<std::byte>>(sample.picture), sample.name, box, options, crop);
      if (options.scale > 1 && crop.width < box.width) inside = scaled_box(box, options.scale, crop);
    }
    return {&crop,
            {inside,
             output_.width,
             output_.height,
             interpolation_,
             {0, 0, output_.width, output_.height},
             mirrored},
            0,
            0,
            box_map(size, box, mirrored)};
  }

  // Returns the map of a box of the image that is resized to the whole output.
  GeometryMap box_map(Extent picture, const Box& box, bool mirrored) const {
    const double left = box.left, top = box.top;
    return {{left, left + box.width, output_.width, 0, output_.width, picture.width, mirrored},
            {top, top + box.height, output_.height, 0, output_.height, picture.height}};
  }

  // Returns the largest DCT reduction that still yields at least the output's pixels.
  int scale_for(const Box& box) const {
    int scale = 8;
    while (scale > 1 && (box.width < scale * output_.width || box.height < scale * output_.height))
      scale /= 2;
    return scale;
  }

  // Returns the box within its scaled pixels, which begin and end at whole ones.
  static FloatBox scaled_box(const Box& box, int scale, const Image& crop) {
    const double left = static_cast<double>(box.left % scale) / scale;
    const double top = static_cast<double>(box.top % scale) / scale;
    return {left, top, std::min<double>(crop.width, left + static_cast<double>(box.width) / scale),
            std::min<double>(crop.height, top + static_cast<double>(box.height) / scale)};
  }

  const Image& padded(const RawSample& sample, Draws& draws, GeometryMap& map) const {
    const Image& image = decoded(sample);
    const Extent have{image.height, image.width};
    // The short side becomes the output's side, so that both sides cover it.
    const Extent size =
        have == output_ ? have : naming(sample, [&] { return resize_short_side(have, output_.width); });
    const int padding = static_cast<int>(augment_.padding);
    const int top = static_cast<int>(draws.integer(0, size.height + 2 * padding - output_.height)) - padding;
    const int left = static_cast<int>(draws.integer(0, size.width + 2 * padding - output_.width)) - padding;
    const Line rows = line(top, output_.height, size.height, false);
    const bool mirrored = flipped(draws);
    const Line columns = line(left, output_.width, size.width, mirrored);
    map = whole_map(have, size, left, top, mirrored);
    map.x.reflected = map.y.reflected = augment_.padding_mode == "reflect";
    if (have == output_ && image.channels == 3) return place(image, {0, 0}, rows, columns);
    // Only the crop is resized, so the long side of a strip has no limit.
    const Box window{columns.first, rows.first, columns.count(), rows.count()};
    memory().decoded = naming(sample, [&] {
      return resize(image, {whole(image), size.width, size.height, interpolation_, window, false});
    });
    return place(memory().decoded, {rows.first, columns.first}, rows, columns);
  }

  // The source pixels of an output line, -1 for black; and the first and last pixel of the image among them
  // (if there are none, any pixel).
  struct Line {
    std::vector<int> from;
    int first = 0, last = 0;
    int count() const { return last - first + 1; }
  };
  Line line(int start, int length, int size, bool mirrored) const {
    Line out;
    out.first = size - 1;
    for (int i = 0; i < length; ++i) {
      int from = start + (mirrored ? length - 1 - i : i);
      if (augment_.padding_mode == "reflect") from = reflect(from, size);
      if (from < 0 || from >= size) from = -1;
      out.from.push_back(from);
      if (from < 0) continue;
      out.first = std::min(out.first, from);
      out.last = std::max(out.last, from);
    }
    if (out.last < out.first) out.last = out.first;
    return out;
  }

  // Assembles the output from a region of the image that begins at `corner`.
  const Image& place(const Image& part, Extent corner, const Line& rows, const Line& columns) const {
    Image& out = memory().placed;
    out.reshape(output_.width, output_.height);
    for (int y = 0; y < output_.height; ++y) {
      const int from_y = rows.from[static_cast<size_t>(y)];
      const uint8_t* row = part.row(from_y < 0 ? 0 : from_y - corner.height);
      uint8_t* to = out.row(y);
      for (const int from_x : columns.from) {
        if (from_y >= 0 && from_x >= 0)
          std::memcpy(to, row + 3 * (from_x - corner.width), 3);
        else
          std::memset(to, 0, 3);
        to += 3;
      }
    }
    return out;
  }

  AugmentConfig augment_;
  PixelAugment pixels_;
};

}  // namespace

std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess, int64_t height,
                                                     int64_t width, const JointFields& joint) {
  const MakeColourTransform make = [=](const Preprocess& part, const JointFields& fields) {
    return std::make_shared<EvalTransform>(part, height, width, fields);
  };
  return preprocess.mean.size() == 3 ? make(preprocess, joint)
                                     : make_bands_transform(preprocess, joint, {}, make);
}

std::shared_ptr<const Transform> make_eval_transform(const Preprocess& preprocess, const JointFields& joint) {
  return make_eval_transform(preprocess, preprocess.size, preprocess.size, joint);
}

std::shared_ptr<const Transform> make_train_transform(const Preprocess& preprocess,
                                                      const AugmentConfig& augment,
                                                      const JointFields& joint) {
  const bool colour = preprocess.mean.size() == 3;
  AugmentConfig of_colours = augment;
  if (!colour) of_colours.erase = {};  // applied later, to all channels together
  const MakeColourTransform make = [&](const Preprocess& part, const JointFields& fields) {
    return std::make_shared<TrainTransform>(part, of_colours, fields, of_colours);
  };
  return colour ? make(preprocess, joint) : make_bands_transform(preprocess, joint, augment, make);
}

std::shared_ptr<const Transform> make_view_transform(const Preprocess& preprocess,
                                                     const ViewAugment& augment) {
  if (preprocess.mean.size() != 3)
    fail_usage("views have augmented colours: preprocess.mean has ", preprocess.mean.size(),
               " numbers, must have 3");
  AugmentConfig crop;
  crop.scale = augment.scale, crop.ratio = augment.ratio, crop.flip = augment.flip;
  return std::make_shared<TrainTransform>(preprocess, crop, JointFields(), augment);
}

}  // namespace tessera::data
