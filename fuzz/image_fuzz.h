// Properties of every decodable image file, for any decoder.
#pragma once

#include "fuzz/fuzz.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "io/images/image_codec.h"

inline tessera::Image decode_with(std::span<const std::byte> bytes, const tessera::DecodeOptions& options,
                                  bool own_huffman, std::string& error) {
  tessera::codec::huffman_use().allowed = own_huffman;
  try {
    return tessera::decode_image(bytes, "f", options);
  } catch (const tessera::Error& e) {
    error = e.what();
    return {};
  }
}

inline int fuzz_image(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [&](std::span<const std::byte> bytes) {
    const tessera::DecodeOptions options = {.max_pixels = 1 << 16};
    const auto info = tessera::image_info(bytes, "f");
    // Our own Huffman decoder and libjpeg's give the same result, even errors.
    std::string said, said_without;
    const tessera::Image without = decode_with(bytes, options, false, said_without);
    const tessera::Image whole = decode_with(bytes, options, true, said);
    if (said != said_without || whole.pixels != without.pixels) std::abort();
    if (!said.empty()) tessera::fail(said);
    const bool swapped = tessera::applied_orientation(info, options) >= 5;
    if (whole.width != (swapped ? info.height : info.width) ||
        whole.height != (swapped ? info.width : info.height))
      std::abort();
    if (whole.pixels.size() !=
        size_t{3} * static_cast<size_t>(whole.width) * static_cast<size_t>(whole.height))
      std::abort();
    // libjpeg smooths progressive images that lack scans, over more blocks than a crop has.
    if (tessera::as_text(bytes).find("\xFF\xC2") != std::string_view::npos) return;
    // A crop, at a place taken from the bytes, equals the same part of the whole image.
    const auto part = [&](size_t byte, int extent) {
      return static_cast<int>(data[byte % size]) * extent / 256;
    };
    tessera::Box box{part(size / 2, whole.width), part(size / 3, whole.height), 0, 0};
    box.width = 1 + part(size - 1, whole.width - box.left);
    box.height = 1 + part(size / 5, whole.height - box.top);
    tessera::Image crop;
    try {
      crop = tessera::decode_image_crop(bytes, "f", box, options);
    } catch (const tessera::Error&) {
      std::abort();  // an image's validity does not depend on the crop
    }
    if (crop.width != box.width || crop.height != box.height) std::abort();
    for (int y = 0; y < box.height; ++y)
      if (std::memcmp(crop.row(y), whole.row(box.top + y) + 3 * box.left,
                      size_t{3} * static_cast<size_t>(box.width)) != 0)
        std::abort();
  });
}
