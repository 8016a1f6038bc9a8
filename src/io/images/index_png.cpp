#include "io/images/index_png.h"

#include <png.h>

#include <csetjmp>
#include <cstring>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera {
namespace {

// The input or output of libpng, and its error exit: since libpng is C, this is a longjmp.
struct Stream {
  std::span<const std::byte> rest = {};
  std::vector<std::byte>* out = nullptr;
  std::jmp_buf escape;
  char message[160] = "";
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* stream = static_cast<Stream*>(png_get_error_ptr(png));
  std::strncpy(stream->message, message, sizeof(stream->message) - 1);
  std::longjmp(stream->escape, 1);
}
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* stream = static_cast<Stream*>(png_get_io_ptr(png));
  if (count > stream->rest.size()) png_error(png, "the file ends before the image does");
  std::memcpy(to, stream->rest.data(), count);
  stream->rest = stream->rest.subspan(count);
}

void write_bytes(png_structp png, png_bytep from, size_t count) {
  auto* stream = static_cast<Stream*>(png_get_io_ptr(png));
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  stream->out->insert(stream->out->end(), bytes, bytes + count);
}
void flush(png_structp) {}

// Runs `step`, which must not contain anything that needs a destructor; returns false if libpng failed.
template <class Step>
[[gnu::noinline]] bool guarded(Stream& stream, Step&& step) {
  if (setjmp(stream.escape)) return false;
  step();
  return true;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : name_(name) {
    stream_.rest = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &stream_, on_error, on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) png_destroy_read_struct(&png_, nullptr, nullptr);
    check(info_ != nullptr, name_, ": no memory to decode a PNG");
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;

  IndexImage read() {
    start();
    IndexImage image;
    image.width = static_cast<int>(png_get_image_width(png_, info_));
    image.height = static_cast<int>(png_get_image_height(png_, info_));
    const size_t width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
    const size_t stride = png_get_rowbytes(png_, info_);
    image.values.resize(width * height);
    const bool interlaced = passes_ > 1;
    std::vector<uint8_t> lines(stride * (interlaced ? height : 1));
    for (int pass = 0; pass < passes_; ++pass)
      for (size_t y = 0; y < height; ++y) {
        uint8_t* line = lines.data() + (interlaced ? stride * y : 0);
        run([&] { png_read_row(png_, line, nullptr); });
        if (pass + 1 < passes_) continue;
        for (size_t x = 0; x < width; ++x) image.values[y * width + x] = number_at(line, x);
      }
    return image;
  }

 private:
  template <class Step>
  void run(Step&& step) {
    if (!guarded(stream_, step)) fail(name_, ": broken PNG (", stream_.message, ")");
  }

  void start() {
    run([this] {
      png_set_read_fn(png_, &stream_, read_bytes);
      png_set_chunk_cache_max(png_, 128);
      png_set_chunk_malloc_max(png_, 8 << 20);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller limits the size
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_read_info(png_, info_);
    });
    run([this] {
      png_set_packing(png_);
      if (png_get_color_type(png_, info_) & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png_);
      passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    channels_ = png_get_channels(png_, info_);
    wide_ = png_get_bit_depth(png_, info_) == 16;
  }

  // Returns the number of a pixel. Other programs write it three times, as red, green and blue.
  uint16_t number_at(const uint8_t* line, size_t x) const {
    const auto number = [&](size_t i) {
      return wide_ ? static_cast<uint16_t>(line[2 * i] << 8 | line[2 * i + 1]) : uint16_t{line[i]};
    };
    const uint16_t first = number(x * channels_);
    for (size_t c = 1; c < channels_; ++c)
      if (number(x * channels_ + c) != first)
        fail(name_,
             ": the PNG has colours, a mask must have one number a pixel (gray of 8 or 16 bits, or a "
             "palette)");
    return first;
  }

  const std::string& name_;
  Stream stream_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  size_t channels_ = 1;
  bool wide_ = false;
};

// Returns numbers from the two channels of their bytes.
IndexImage numbers_in(const Image& pairs) {
  IndexImage out{pairs.width, pairs.height, {}};
  out.values.resize(pairs.pixels.size() / 2);
  std::memcpy(out.values.data(), pairs.pixels.data(), pairs.pixels.size());
  return out;
}

// Returns the mask rotated and mirrored by the EXIF orientation of its file.
IndexImage oriented(IndexImage mask, int orientation) {
  if (orientation == 1) return mask;
  Image pairs(mask.width, mask.height, 2);  // the bytes of each number
  std::memcpy(pairs.pixels.data(), mask.values.data(), pairs.pixels.size());
  return numbers_in(orient(pairs, orientation));
}

// Returns the numbers of an image with equal red, green and blue.
IndexImage gray_numbers(const Image& colours, const std::string& name) {
  IndexImage out{colours.width, colours.height, {}};
  out.values.resize(colours.pixels.size() / 3);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const uint8_t* pixel = colours.pixels.data() + 3 * i;
    if (pixel[1] != pixel[0] || pixel[2] != pixel[0])
      fail(name,
           ": has colours, a mask must have one number a pixel (gray, or a palette of PNG, TIFF or BMP)");
    out.values[i] = pixel[0];
  }
  return out;
}

}  // namespace

IndexImage decode_index_image(std::span<const std::byte> bytes, const std::string& name, int64_t max_pixels) {
  const ImageInfo info = image_info(bytes, name);
  if (info.format == "png") return decode_index_png(bytes, name, max_pixels);
  check(info.format != "jpeg", name,
        ": is a JPEG, and its compression changes numbers; a mask must be a PNG, TIFF or BMP");
  codec::check_size(info.width, info.height, max_pixels, name);
  if (info.format == "tiff")
    return oriented(numbers_in(codec::decode_tiff_numbers(bytes, name)), info.orientation);
  if (info.format == "bmp")
    if (const auto numbers = codec::decode_bmp_numbers(bytes, name)) return gray_numbers(*numbers, name);
  return gray_numbers(decode_image(bytes, name, DecodeOptions{.max_pixels = max_pixels}), name);
}

IndexImage decode_index_png(std::span<const std::byte> bytes, const std::string& name, int64_t max_pixels) {
  const ImageInfo info = image_info(bytes, name);
  check(info.format == "png", name, ": is a ", info.format,
        " file, a mask must be a PNG with one number a pixel");
  check(static_cast<int64_t>(info.width) * info.height <= max_pixels, name, ": has ", info.width, "x",
        info.height, " pixels, more than ", max_pixels);
  return oriented(Reader(bytes, name).read(), info.orientation);
}

std::vector<std::byte> encode_index_png(const Image& image, std::span<const std::array<uint8_t, 3>> palette) {
  check(image.channels == 1 && image.width > 0 && image.height > 0, "cannot write ", image.width, "x",
        image.height, " pixels of ", image.channels, " channels as a PNG with a palette");
  check(!palette.empty() && palette.size() <= 256, "a palette has ", palette.size(),
        " colours, must be 1 to 256");
  for (const uint8_t value : image.pixels)
    check(value < palette.size(), "a pixel has the index ", static_cast<int>(value), ", the palette has ",
          palette.size(), " colours");
  std::vector<std::byte> out;
  Stream stream;
  stream.out = &out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &stream, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && guarded(stream, [&] {
                      png_set_write_fn(png, &stream, write_bytes, flush);
                      png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
                                   static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_PALETTE,
                                   PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
                      png_color colours[256];
                      for (size_t i = 0; i < palette.size(); ++i)
                        colours[i] = {palette[i][0], palette[i][1], palette[i][2]};
                      png_set_PLTE(png, info, colours, static_cast<int>(palette.size()));
                      png_write_info(png, info);
                      for (int y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
                      png_write_end(png, nullptr);
                    });
  png_destroy_write_struct(&png, &info);
  check(done, "cannot write PNG: ", stream.message);
  return out;
}

}  // namespace tessera
