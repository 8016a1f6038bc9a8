#include "io/images/image.h"

#include <webp/encode.h>

#include <memory>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

std::string suffix_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : lower(path.substr(dot));
}

std::vector<std::byte> encode_webp(const Image& image, const std::string& path) {
  check(image.width <= WEBP_MAX_DIMENSION && image.height <= WEBP_MAX_DIMENSION, path, ": ", image.width, "x",
        image.height, " pixels, a WebP has at most ", WEBP_MAX_DIMENSION, " a side: write a .png");
  uint8_t* memory = nullptr;
  const size_t size =
      WebPEncodeLosslessRGB(image.pixels.data(), image.width, image.height, 3 * image.width, &memory);
  const std::unique_ptr<uint8_t, void (*)(void*)> owner(memory, WebPFree);
  check(size > 0, path, ": cannot write WebP");
  const auto* first = reinterpret_cast<const std::byte*>(memory);
  return {first, first + size};
}

}  // namespace

bool is_image_name(const std::string& path) {
  const std::string suffix = suffix_of(path);
  return suffix == ".png" || suffix == ".jpg" || suffix == ".jpeg" || suffix == ".webp";
}

std::vector<std::byte> encode_image(const Image& image, const std::string& path) {
  check(image.channels == 3, path, ": an image of ", image.channels, " channels, must have 3");
  const std::string suffix = suffix_of(path);
  if (suffix == ".png") return encode_png(image);
  if (suffix == ".jpg" || suffix == ".jpeg") return encode_jpeg(image);
  if (suffix == ".webp") return encode_webp(image, path);
  fail(path, ": the name must end in .png, .jpg, .jpeg or .webp");
}

}  // namespace tessera
