#include "data/transforms/transform.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/transforms/augment_operations.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

constexpr size_t kTogether = 3;  // channels of a colour transform

// Returns the image with the transform's channels; for one channel, a colour image without colour.
Image read_bands(const RawSample& sample, size_t channels, bool apply_exif) {
  DecodeOptions options;
  options.apply_exif = apply_exif;
  if (channels == 1) {
    Image image = decode_sample(sample, options);
    grayscale(image);
    return image;
  }
  const int wanted = static_cast<int>(channels);
  if (const auto* image = std::get_if<Image>(&sample.picture)) {
    check(image->channels == wanted, sample.name, ": has ", image->channels, " channels, must have ", wanted);
    return *image;
  }
  return decode_bands(std::get<std::vector<std::byte>>(sample.picture), sample.name, wanted, options);
}

// Returns bands first, first + 1, first + 2 as a colour image; missing bands repeat the last.
Image three_of(const Image& bands, size_t first) {
  Image out(bands.width, bands.height);
  const auto channels = static_cast<size_t>(bands.channels);
  const size_t pixels = out.pixels.size() / kTogether;
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < kTogether; ++c)
      out.pixels[kTogether * i + c] = bands.pixels[channels * i + std::min(first + c, channels - 1)];
  return out;
}

std::vector<double> three_of(const std::vector<double>& numbers, size_t first) {
  std::vector<double> out;
  for (size_t c = 0; c < kTogether; ++c) out.push_back(numbers[std::min(first + c, numbers.size() - 1)]);
  return out;
}

class BandsTransform final : public Transform {
 public:
  BandsTransform(const Preprocess& preprocess, const JointFields& joint, EraseConfig erase,
                 const MakeColourTransform& make)
      : channels_(preprocess.mean.size()), apply_exif_(preprocess.apply_exif), erase_(std::move(erase)) {
    for (size_t first = 0; first < channels_; first += kTogether) {
      Preprocess part = preprocess;
      part.mean = three_of(preprocess.mean, first), part.std = three_of(preprocess.std, first);
      parts_.push_back(make(part, first == 0 ? joint : JointFields{}));
    }
    fields_ = parts_.front()->fields();
    fields_.front().shape.front() = static_cast<int64_t>(channels_);
  }
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    const Image bands = read_bands(sample, channels_, apply_exif_);
    const auto height = static_cast<int>(fields_[0].shape[1]), width = static_cast<int>(fields_[0].shape[2]);
    const size_t plane = static_cast<size_t>(height) * static_cast<size_t>(width);
    static thread_local std::vector<float> three;
    three.resize(kTogether * plane);
    auto* image = out[0].as<float>();
    const RandomStream before = random;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const size_t first = kTogether * part, count = std::min(kTogether, channels_ - first);
      RawSample colours{sample.name, three_of(bands, first), {}};
      if (part == 0) colours.annotation = sample.annotation;
      std::vector<Slot> slots(out.begin(), part == 0 ? out.end() : out.begin() + 1);
      slots[0] = {reinterpret_cast<std::byte*>(three.data()), nullptr};
      random = before;
      parts_[part]->apply(colours, random, slots);
      std::copy_n(three.begin(), count * plane, image + first * plane);
    }
    if (erase_.probability > 0) {
      StreamDraws draws(random);
      erase(erase_, static_cast<int>(channels_), height, width, draws, image);
    }
  }

 private:
  size_t channels_;
  bool apply_exif_;
  EraseConfig erase_;
  std::vector<std::shared_ptr<const Transform>> parts_;
  std::vector<Field> fields_;
};

}  // namespace

std::shared_ptr<const Transform> make_bands_transform(const Preprocess& preprocess, const JointFields& joint,
                                                      const AugmentConfig& augment,
                                                      const MakeColourTransform& make) {
  constexpr size_t kMost = 64;
  const size_t channels = preprocess.mean.size();
  if (channels < 1 || channels > kMost)
    fail_usage("mean has ", channels, " numbers, one a channel, must be 1 to ", kMost);
  if (preprocess.std.size() != channels)
    fail_usage("std has ", preprocess.std.size(), " numbers, must be ", channels, " as mean has");
  const bool colours =
      !augment.auto_augment.empty() || augment.three_augment || !augment.color_jitter.empty();
  if (channels > 1 && colours)
    fail_usage("images of ", channels,
               " channels have no red, green and blue: leave out augment.auto_augment, three_augment and "
               "color_jitter");
  return std::make_shared<BandsTransform>(preprocess, joint, augment.erase, make);
}

}  // namespace tessera::data
