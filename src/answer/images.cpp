#include "answer/images.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/config.h"
#include "core/text.h"
#include "data/base/source.h"
#include "io/files/json.h"
#include "open/image_walk.h"

namespace tessera::answer {
namespace {

constexpr int64_t kMostPrepared = int64_t{1} << 30;  // bytes of a request's transformed images
// Images of the largest size that a request may hold decoded, and that may be decoded for it one after another.
constexpr int64_t kMostImages = 4, kMostDecoded = 64;

const Array* input_of(const Request& request, const char* name) {
  const auto found = std::ranges::find(request.inputs, name, &Array::name);
  return found == request.inputs.end() ? nullptr : &*found;
}

std::span<const std::byte> bytes_of(const std::string& content) {
  return std::as_bytes(std::span(content.data(), content.size()));
}

void check_pixels(int64_t width, int64_t height, int64_t max_pixels, const std::string& name) {
  if (width > 0 && height > max_pixels / width)
    throw TooLarge(text(name, " has ", width, " x ", height, " pixels, must have at most ", max_pixels));
}

Image image_at(const Array& pixels, int64_t index) {
  Image image(static_cast<int>(pixels.shape[2]), static_cast<int>(pixels.shape[1]));
  std::memcpy(image.pixels.data(), pixels.data.data() + static_cast<size_t>(index) * image.pixels.size(),
              image.pixels.size());
  return image;
}

// Returns the height and width of a sample that read_samples() checked.
std::pair<int64_t, int64_t> sides_of(const data::RawSample& sample) {
  if (const auto* image = std::get_if<Image>(&sample.picture)) return {image->height, image->width};
  const ImageInfo info = image_info(std::get<std::vector<std::byte>>(sample.picture), sample.name);
  return {info.height, info.width};
}

// Returns the values of input `prepared`. The buffer of the request need not be aligned.
torch::Tensor prepared_values(const Array& prepared) {
  torch::Tensor values = torch::empty(prepared.shape);
  std::memcpy(values.data_ptr(), prepared.data.data(), prepared.data.size());
  const auto* value = values.const_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    if (!std::isfinite(value[i]))
      fail_usage("input prepared: value ", i, " is ", value[i], ", must be finite");
  return values;
}

Datatype datatype_of(torch::ScalarType type) {
  switch (type) {
    case torch::kUInt8:
      return Datatype::uint8;
    case torch::kInt32:
      return Datatype::int32;
    case torch::kInt64:
      return Datatype::int64;
    case torch::kFloat32:
      return Datatype::fp32;
    case torch::kFloat64:
      return Datatype::fp64;
    default:
      fail("outputs of type ", type, " have no datatype");
  }
}

}  // namespace

std::vector<ArrayDescription> picture_inputs() {
  return {{"image", Datatype::bytes, {-1}, "encoded images: JPEG, PNG, WebP, GIF, BMP or TIFF"},
          {"pixels", Datatype::uint8, {-1, -1, -1, 3}, "[images, height, width, red green blue]"}};
}

std::vector<ArrayDescription> prepared_inputs(const std::vector<int64_t>& shape) {
  std::vector<ArrayDescription> inputs = picture_inputs();
  inputs.push_back({"prepared",
                    Datatype::fp32,
                    {-1, shape.at(0), shape.at(1), shape.at(2)},
                    "preprocessed images, as the metadata describe"});
  return inputs;
}

std::vector<std::string> names_of(const std::vector<ArrayDescription>& arrays) {
  std::vector<std::string> names;
  for (const ArrayDescription& array : arrays) names.push_back(array.name);
  return names;
}

std::vector<data::RawSample> read_samples(const Request& request, int64_t max_pixels) {
  std::vector<data::RawSample> samples;
  int64_t pixels_together = 0;
  if (const Array* encoded = input_of(request, "image")) {
    for (size_t i = 0; i < encoded->texts.size(); ++i) {
      const std::string name = text("image ", i);
      const auto bytes = bytes_of(encoded->texts[i]);
      const ImageInfo info = image_info(bytes, name);
      check_pixels(info.width, info.height, max_pixels, name);
      pixels_together += int64_t{info.width} * info.height;
      if (pixels_together > kMostDecoded * max_pixels)
        throw TooLarge(text("the images have more than ", kMostDecoded * max_pixels, " pixels together"));
      samples.push_back({.name = name, .picture = std::vector<std::byte>(bytes.begin(), bytes.end())});
    }
  } else if (const Array* pixels = input_of(request, "pixels")) {
    check_pixels(pixels->shape[2], pixels->shape[1], max_pixels, "pixels");
    for (int64_t i = 0; i < pixels->shape[0]; ++i)
      samples.push_back({.name = text("image ", i), .picture = image_at(*pixels, i)});
  }
  return samples;
}

std::vector<Image> read_images(const Request& request, bool apply_exif, int64_t max_pixels,
                               const std::function<void(int64_t height, int64_t width)>& check_size) {
  const std::vector<data::RawSample> samples = read_samples(request, max_pixels);
  int64_t pixels = 0;
  for (const data::RawSample& sample : samples) {
    const auto [height, width] = sides_of(sample);
    pixels += height * width;
    if (pixels > kMostImages * max_pixels)
      throw TooLarge(text("the images have more than ", kMostImages * max_pixels, " pixels together"));
    check_size(height, width);
  }
  std::vector<Image> images;
  for (const data::RawSample& sample : samples)
    images.push_back(data::decode_sample(sample, {.max_pixels = max_pixels, .apply_exif = apply_exif}));
  return images;
}

torch::Tensor read_prepared(const Request& request, const data::Transform& transform, int64_t max_pixels,
                            int64_t most) {
  if (const Array* prepared = input_of(request, "prepared"))
    return prepared_values(*prepared).slice(0, 0, most);
  const std::vector<data::RawSample> samples = read_samples(request, max_pixels);
  const int64_t count = std::min(std::ssize(samples), most);
  check_prepared(count, transform.fields().at(0).numel());
  return train::prepared_images(transform, count,
                                [&](int64_t index) { return samples[static_cast<size_t>(index)]; });
}

void check_prepared(int64_t count, int64_t numbers) {
  const int64_t most = kMostPrepared / (numbers * static_cast<int64_t>(sizeof(float)));
  if (count > most)
    throw TooLarge(text("the request has ", count, " images, must have at most ", most, " for this model"));
}

Array array_of(const std::string& name, const torch::Tensor& values) {
  const torch::Tensor whole = values.contiguous();
  const auto* bytes = static_cast<const char*>(whole.const_data_ptr());
  return {.name = name,
          .type = datatype_of(whole.scalar_type()),
          .shape = whole.sizes().vec(),
          .data = std::string(bytes, bytes + whole.nbytes())};
}

Array texts_of(const std::string& name, std::vector<int64_t> shape, std::vector<std::string> texts) {
  return {.name = name,
          .type = Datatype::bytes,
          .shape = std::move(shape),
          .data = {},
          .texts = std::move(texts)};
}

nlohmann::ordered_json preprocess_json(const data::Preprocess& preprocess) {
  return nlohmann::ordered_json::parse(json_text(write_config(preprocess)));
}

}  // namespace tessera::answer
