// PNG through libpng, with transformations that give Pillow's pixels; of 16-bit values, gray or colour, the
// upper 8 bits.
#include <png.h>
#include <zlib.h>

#include <csetjmp>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera::codec {
namespace {

constexpr size_t kHeaderBytes = 8 + 25;  // signature and IHDR

// libpng reports an error by a call that must not return. As libpng is C, longjmp leaves it.
struct Reading {
  Bytes rest;
  std::jmp_buf escape;
  char message[160] = "";
  bool truncated = false;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* reading = static_cast<Reading*>(png_get_error_ptr(png));
  std::strncpy(reading->message, message, sizeof(reading->message) - 1);
  std::longjmp(reading->escape, 1);
}
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* reading = static_cast<Reading*>(png_get_io_ptr(png));
  if (count > reading->rest.size()) {
    reading->truncated = true;
    png_error(png, "the file ends before the image does");
  }
  std::memcpy(to, reading->rest.data(), count);
  reading->rest = reading->rest.subspan(count);
}

// Runs `step`; returns false if libpng failed. `step` must not contain anything that needs a destructor.
template <class Step>
[[gnu::noinline]] bool guarded(Reading& reading, Step&& step) {
  if (setjmp(reading.escape)) return false;
  step();
  return true;
}

class Reader {
 public:
  Reader(Bytes bytes, const std::string& name) : name_(name) {
    reading_.rest = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading_, on_error, on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) png_destroy_read_struct(&png_, nullptr, nullptr);
    check(info_, name_, ": no memory to decode a PNG");
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;

  void decode(const Box& box, Image& out) {
    start();
    out.reshape(box.width, box.height);
    const size_t stride = png_get_rowbytes(png_, info_);
    const size_t height = png_get_image_height(png_, info_);
    const bool interlaced = passes_ > 1;
    lines_.resize(stride * (interlaced ? height : 1));
    for (int pass = 0; pass < passes_; ++pass) {
      for (size_t y = 0; y < height; ++y) {
        uint8_t* line = lines_.data() + (interlaced ? stride * y : 0);
        run([&] { png_read_row(png_, line, nullptr); });
        if (pass == passes_ - 1) copy(line, static_cast<int>(y), box, out);
      }
    }
  }

 private:
  template <class Step>
  void run(Step&& step) {
    if (guarded(reading_, step)) return;
    if (reading_.truncated) fail(name_, ": truncated PNG, the file ends before the image does");
    fail(name_, ": broken PNG (", reading_.message, ")");
  }

  void start() {
    run([this] {
      png_set_read_fn(png_, &reading_, read_bytes);
      png_set_user_limits(png_, PNG_UINT_31_MAX,
                          PNG_UINT_31_MAX);  // the caller limits the number of pixels
      png_set_chunk_cache_max(png_, 128);
      png_set_chunk_malloc_max(png_, 8 << 20);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // no profiles, texts, gamma
      png_read_info(png_, info_);
      const int type = png_get_color_type(png_, info_), depth = png_get_bit_depth(png_, info_);
      if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
      if (depth == 16) png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png_);
      passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
  }

  static void copy(const uint8_t* line, int y, const Box& box, Image& out) {
    if (y < box.top || y >= box.top + box.height) return;
    std::memcpy(out.row(y - box.top), line + static_cast<ptrdiff_t>(box.left) * 3,
                static_cast<size_t>(box.width) * 3);
  }

  const std::string& name_;
  Reading reading_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<uint8_t> lines_;
  int passes_ = 1;
};

}  // namespace

ImageInfo png_info(Bytes bytes, const std::string& name) {
  check(bytes.size() >= kHeaderBytes, name, ": truncated PNG, the file ends in its headers");
  check(std::memcmp(bytes.data() + 12, "IHDR", 4) == 0, name, ": broken PNG (no header)");
  const uint32_t width = big_endian32(bytes, 16), height = big_endian32(bytes, 20);
  check(width <= PNG_UINT_31_MAX && height <= PNG_UINT_31_MAX, name, ": broken PNG (size ", width, "x",
        height, ")");
  ImageInfo info{static_cast<int>(width), static_cast<int>(height), "png", 1};
  Orientation orientation;
  for (size_t at = 8; at + 12 <= bytes.size();) {  // length, kind, data, checksum
    const size_t length = big_endian32(bytes, at);
    if (length > bytes.size() - at - 12) break;
    const std::string_view kind(reinterpret_cast<const char*>(bytes.data()) + at + 4, 4);
    if (kind == "eXIf") orientation.add_exif(bytes.subspan(at + 8, length));
    if (kind == "tEXt" || kind == "zTXt" || kind == "iTXt")
      orientation.add_png_text(kind, bytes.subspan(at + 8, length));
    at += 12 + length;
  }
  info.orientation = orientation.value();
  return info;
}

void decode_png(Bytes bytes, const std::string& name, const Box& box, Image& out) {
  Reader(bytes, name).decode(box, out);
}

}  // namespace tessera::codec

namespace tessera {
namespace {

// Inserts a chunk after the header, which libpng's simple interface cannot do.
void insert_exif(std::vector<std::byte>& png, int orientation) {
  constexpr std::ptrdiff_t kBehindHeader = 33;  // signature and IHDR
  const auto exif = codec::exif_block(orientation);
  std::vector<uint8_t> chunk = {0, 0, 0, static_cast<uint8_t>(exif.size()), 'e', 'X', 'I', 'f'};
  chunk.insert(chunk.end(), exif.begin(), exif.end());
  const auto sum = crc32(0, chunk.data() + 4, static_cast<uInt>(chunk.size() - 4));
  for (const int shift : {24, 16, 8, 0}) chunk.push_back(static_cast<uint8_t>(sum >> shift));
  const auto* bytes = reinterpret_cast<const std::byte*>(chunk.data());
  png.insert(png.begin() + kBehindHeader, bytes, bytes + chunk.size());
}

}  // namespace

std::vector<std::byte> encode_png(const Image& image, int orientation) {
  check(image.width > 0 && image.height > 0, "cannot write ", image.width, "x", image.height,
        " pixels as PNG");
  check(image.channels == 1 || image.channels == 3, "cannot write ", image.channels,
        " channels as PNG, must be 1 or 3");
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  // Pages of the largest size that are not written take no memory.
  const auto written = std::make_unique_for_overwrite<std::byte[]>(size);
  const int ok = png_image_write_to_memory(&header, written.get(), &size, 0, image.pixels.data(), 0, nullptr);
  check(ok != 0, "cannot write PNG: ", header.message);
  std::vector<std::byte> bytes(written.get(), written.get() + size);
  if (orientation != 1) insert_exif(bytes, orientation);
  return bytes;
}

}  // namespace tessera
