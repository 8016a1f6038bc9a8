#include "data/transforms/transform_masks.h"

#include <algorithm>

#include "core/error.h"
#include "data/transforms/augment.h"
#include "data/transforms/augment_operations.h"

namespace tessera::data {
namespace {

// Returns the mask in the orientation of its decoded image. Sources return masks as viewers show the image.
Image mask_of(const RawSample& sample, const Image& picture, const DecodeOptions& decode) {
  check(sample.annotation.mask.has_value(), sample.name, ": has no mask");
  Image mask = *sample.annotation.mask;
  const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
  if (!decode.apply_exif && bytes && mask.width == picture.height && mask.height == picture.width)
    if (const ImageInfo info = image_info(*bytes, sample.name);
        info.orientation >= 5 && applied_orientation(info, decode) == 1)
      mask = orient(mask, inverse_orientation(info.orientation));
  check(mask.channels == 1 && mask.width == picture.width && mask.height == picture.height, sample.name,
        ": its mask has ", mask.width, "x", mask.height, " pixels, the image ", picture.width, "x",
        picture.height);
  return mask;
}

class MaskTrainingTransform final : public Transform {
 public:
  MaskTrainingTransform(const Preprocess& preprocess, const MaskTraining& options, int64_t height,
                        int64_t width)
      : options_(options),
        size_{static_cast<int>(height), static_cast<int>(width)},
        interpolation_(parse_interpolation(options.interpolation)),
        normalisation_(preprocess.mean, preprocess.std),
        fields_{{"image", DType::f32, {3, height, width}}, {"mask", DType::u8, {height, width}}} {
    decode_.apply_exif = preprocess.apply_exif;
  }
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    StreamDraws draws(random);
    const Image whole = decode_sample(sample, decode_);
    const Image mask = mask_of(sample, whole, decode_);
    const CropPlan plan = plan_crop(mask, options_.crop, size_, kIgnoredPixel, draws);
    Image picture = crop_picture(whole, plan, interpolation_);
    if (options_.photometric) distort_photometrically({}, draws, picture);
    if (!options_.color_jitter.empty() && draws.fraction() < options_.jitter_probability)
      color_jitter(options_.color_jitter, draws, picture);
    write(picture, out[0].as<float>());
    const Image padded = padded_to(crop_mask(mask, plan), size_, kIgnoredPixel);
    std::copy(padded.pixels.begin(), padded.pixels.end(), out[1].as<uint8_t>());
  }

 private:
  // Writes normalised planes; 0 outside the image.
  void write(const Image& picture, float* out) const {
    if (picture.width == size_.width && picture.height == size_.height)
      return normalise(picture, normalisation_, out);
    const auto pixels = static_cast<size_t>(size_.width) * static_cast<size_t>(size_.height);
    std::fill_n(out, 3 * pixels, 0.0f);
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < picture.height; ++y) {
        float* to =
            out + static_cast<size_t>(c) * pixels + static_cast<size_t>(y) * static_cast<size_t>(size_.width);
        const uint8_t* from = picture.row(y) + c;
        for (int x = 0; x < picture.width; ++x) to[x] = normalisation_.table(c)[from[3 * x]];
      }
  }

  MaskTraining options_;
  Extent size_;
  Interpolation interpolation_;
  Normalisation normalisation_;
  DecodeOptions decode_;
  std::vector<Field> fields_;
};

class WholeMasks final : public Transform {
 public:
  explicit WholeMasks(bool apply_exif) { decode_.apply_exif = apply_exif; }
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream&, std::span<const Slot> out) const override {
    const Image picture = decode_sample(sample, decode_);
    const Image mask = mask_of(sample, picture, decode_);
    const int64_t pixels = static_cast<int64_t>(picture.width) * picture.height;
    check(pixels <= kMostMaskPixels, sample.name, ": has ", pixels, " pixels, must be at most ",
          kMostMaskPixels);
    out[0].as<int64_t>()[0] = picture.height;
    out[0].as<int64_t>()[1] = picture.width;
    append(picture.pixels, *out[1].rows);
    append(mask.pixels, *out[2].rows);
  }

 private:
  static void append(const std::vector<uint8_t>& bytes, std::vector<std::byte>& rows) {
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    rows.insert(rows.end(), data, data + bytes.size());
  }

  DecodeOptions decode_;
  std::vector<Field> fields_ = {{"extent", DType::i64, {2}},
                                {"pixels", DType::u8, {kMostMaskPixels, 3}, /*ragged=*/true},
                                {"mask", DType::u8, {kMostMaskPixels, 1}, /*ragged=*/true}};
};

}  // namespace

std::shared_ptr<const Transform> make_mask_training(const Preprocess& preprocess, const MaskTraining& options,
                                                    int64_t height, int64_t width) {
  const auto& [scale, ratio, most, flip] = options.crop;
  if (scale.size() != 2 || scale[0] < 1 || scale[1] < 1 || scale[0] > 16384 || scale[1] > 16384)
    fail_usage("the scale of segmentation crops must be two sides in pixels, 1 to 16384");
  if (ratio.size() != 2 || !(ratio[0] > 0 && ratio[0] <= ratio[1] && ratio[1] <= 16))
    fail_usage("the ratio of segmentation crops must be two numbers, 0 < low <= high <= 16");
  if (!(most > 0 && most <= 1 && flip >= 0 && flip <= 1))
    fail_usage("the share of one class in a crop must be above 0 and at most 1, that of flips 0 to 1");
  return std::make_shared<MaskTrainingTransform>(preprocess, options, height, width);
}

std::shared_ptr<const Transform> make_whole_masks(bool apply_exif) {
  return std::make_shared<WholeMasks>(apply_exif);
}

}  // namespace tessera::data
