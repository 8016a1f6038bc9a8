// TIFF through libtiff: the first page, in gray, palette, RGB and CMYK of unsigned numbers, and YCbCr in JPEG.
// Numbers of 8 bits or more give their upper 8, as in Pillow; here this holds for 16-bit gray too.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera::codec {

namespace {

constexpr int64_t kMostBlockPixels = 1 << 22;  // limit for a tile that is larger than its image
constexpr int kMostSamples = 64;               // per pixel
constexpr tmsize_t kMostBytesAtOnce = tmsize_t{1} << 30;

struct Stream {
  Bytes bytes;
  uint64_t at = 0;
  bool beyond = false;  // a read went past the end
  std::array<char, 200> message{};
};

Stream& stream_of(thandle_t handle) { return *static_cast<Stream*>(handle); }

tmsize_t read_bytes(thandle_t handle, void* to, tmsize_t count) {
  Stream& stream = stream_of(handle);
  const uint64_t rest = stream.at < stream.bytes.size() ? stream.bytes.size() - stream.at : 0;
  const auto taken = static_cast<size_t>(std::min<uint64_t>(rest, static_cast<uint64_t>(count)));
  stream.beyond = stream.beyond || taken < static_cast<size_t>(count);
  if (taken > 0) std::memcpy(to, stream.bytes.data() + stream.at, taken);
  stream.at += taken;
  return static_cast<tmsize_t>(taken);
}
tmsize_t write_bytes(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek(thandle_t handle, toff_t offset, int from) {
  Stream& stream = stream_of(handle);
  stream.at = from == SEEK_SET   ? offset
              : from == SEEK_CUR ? stream.at + offset
                                 : stream.bytes.size() + offset;
  return stream.at;
}
int close_stream(thandle_t) { return 0; }
toff_t size_of_stream(thandle_t handle) { return stream_of(handle).bytes.size(); }

int on_error(TIFF*, void* user, const char*, const char* format, va_list values) {
  Stream& stream = stream_of(user);
  if (stream.message[0] == 0) std::vsnprintf(stream.message.data(), stream.message.size(), format, values);
  return 1;
}
int on_warning(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct Closer {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};

// Old-style JPEG and vendor extensions of scanners are excluded: rare, and the least maintained in libtiff.
bool known_compression(uint16_t kind) {
  constexpr std::array kKnown = {COMPRESSION_NONE,      COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,
                                 COMPRESSION_CCITTFAX4, COMPRESSION_LZW,      COMPRESSION_JPEG,
                                 COMPRESSION_PACKBITS,  COMPRESSION_DEFLATE,  COMPRESSION_ADOBE_DEFLATE,
                                 COMPRESSION_LZMA,      COMPRESSION_ZSTD,     COMPRESSION_WEBP};
  return std::find(kKnown.begin(), kKnown.end(), int{kind}) != kKnown.end();
}

// Returns a * b / 255, rounded as in Pillow.
int multiply255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

class Reader {
 public:
  Reader(Bytes bytes, const std::string& name) : name_(name) {
    stream_.bytes = bytes;
    const std::unique_ptr<TIFFOpenOptions, Closer> options(TIFFOpenOptionsAlloc());
    check(options != nullptr, name, ": no memory to decode a TIFF");
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostBytesAtOnce);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, &stream_);
    TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, nullptr);
    tiff_.reset(TIFFClientOpenExt("image", "rm", &stream_, read_bytes, write_bytes, seek, close_stream,
                                  size_of_stream, nullptr, nullptr, options.get()));
    if (!tiff_) fail_with("its headers make no sense");
    uint32_t width = 0, height = 0;
    if (!TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width) ||
        !TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height))
      fail_with("it has no size");
    check(width <= INT32_MAX && height <= INT32_MAX, name, ": broken TIFF (size ", width, "x", height, ")");
    uint32_t kind = 0;
    check(!TIFFGetField(tiff_.get(), TIFFTAG_SUBFILETYPE, &kind) || !(kind & FILETYPE_REDUCEDIMAGE), name,
          ": the first page of the TIFF is a preview, as in a camera's raw file: convert it to JPEG or PNG");
    width_ = static_cast<int>(width), height_ = static_cast<int>(height);
    orientation_ = read_orientation();
  }

  int width() const { return width_; }
  int height() const { return height_; }
  int orientation() const { return orientation_; }

  // Decodes in the file's stored orientation.
  Image decode() {
    read_layout();
    return decode_as(3, [this](size_t row, int count, uint8_t* to) { convert(row, count, to); });
  }

  // The same with every number of a pixel unconverted.
  Image decode_bands(int bands) {
    read_layout();
    check(samples_ == bands && bits_ >= 8, name_, ": a TIFF of ", samples_, " bands of ", bits_,
          " bits, must have ", bands, " bands of 8 bits or more");
    return decode_as(bands, [this](size_t row, int count, uint8_t* to) {
      for (int x = 0; x < count; ++x)
        for (int s = 0; s < samples_; ++s) *to++ = scaled(value(row, x, s));
    });
  }

  // Decodes the unconverted number of each pixel: two channels with its bytes. Throws if pixels have colours.
  Image decode_numbers() {
    read_layout();
    check(colours_ == 1 && bits_ <= 16, name_, ": a TIFF of ", samples_, " numbers of ", bits_,
          " bits a pixel, a mask must have one of up to 16");
    const unsigned most = (1u << bits_) - 1;
    return decode_as(2, [this, most](size_t row, int count, uint8_t* to) {
      for (int x = 0; x < count; ++x, to += 2) {
        const unsigned stored = value(row, x, 0);
        const auto number =
            static_cast<uint16_t>(photometric_ == PHOTOMETRIC_MINISWHITE ? most - stored : stored);
        std::memcpy(to, &number, sizeof number);
      }
    });
  }

 private:
  // Returns that of the tag, or without one that of XMP; 1 if it is missing or invalid.
  int read_orientation() const {
    uint16_t tag = 0;
    uint32_t size = 0;
    const void* packet = nullptr;
    if (TIFFGetField(tiff_.get(), TIFFTAG_ORIENTATION, &tag)) return tag >= 1 && tag <= 8 ? tag : 1;
    Orientation xmp;
    if (TIFFGetField(tiff_.get(), TIFFTAG_XMLPACKET, &size, &packet) && packet)
      xmp.add_xmp({static_cast<const std::byte*>(packet), size});
    return xmp.value();
  }

  // `convert(row, count, to)` converts `count` pixels of the row at byte `row` of the buffers.
  template <class Convert>
  Image decode_as(int channels, const Convert& convert) {
    Image out(width_, height_, channels);
    const uint32_t blocks = tiled_ ? TIFFNumberOfTiles(tiff_.get()) : TIFFNumberOfStrips(tiff_.get());
    check(blocks <= stream_.bytes.size(), name_, ": broken TIFF (", blocks, " strips or tiles)");
    const auto size = static_cast<size_t>(tiled_ ? TIFFTileSize(tiff_.get()) : TIFFStripSize(tiff_.get()));
    const auto stride =
        static_cast<size_t>(tiled_ ? TIFFTileRowSize(tiff_.get()) : TIFFScanlineSize(tiff_.get()));
    const int in_block = planes_ > 1 ? 1 : samples_;
    const size_t needed = (static_cast<size_t>(block_width_) * static_cast<size_t>(in_block * bits_) + 7) / 8;
    check(stride >= needed && size >= stride * static_cast<size_t>(block_height_) && size > 0, name_,
          ": broken TIFF (a strip or tile of ", size, " bytes)");
    for (std::vector<uint8_t>& buffer : buffers_) buffer.resize(size);
    for (int top = 0; top < height_; top += block_height_)
      for (int left = 0; left < width_; left += block_width_) {
        const int rows = std::min(block_height_, height_ - top);
        for (int plane = 0; plane < planes_; ++plane) read_block(left, top, plane, stride, rows);
        for (int y = 0; y < rows; ++y)
          convert(static_cast<size_t>(y) * stride, std::min(block_width_, width_ - left),
                  out.row(top + y) + channels * static_cast<ptrdiff_t>(left));
      }
    return out;
  }

  [[noreturn]] void fail_with(const char* what) const {
    if (stream_.beyond) fail(name_, ": truncated TIFF, the file ends before the image does");
    fail(name_, ": broken TIFF (", stream_.message[0] ? stream_.message.data() : what, ")");
  }

  uint16_t field(uint32_t tag) const {
    uint16_t value = 0;
    TIFFGetFieldDefaulted(tiff_.get(), tag, &value);
    return value;
  }

  void read_layout() {
    const bool separate = field(TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
    read_colours(separate);
    read_blocks(separate);
  }

  // Reads the numbers of a pixel and their meaning.
  void read_colours(bool separate) {
    const uint16_t compression = field(TIFFTAG_COMPRESSION);
    check(known_compression(compression), name_, ": a TIFF with compression ", compression,
          " is not supported");
    bits_ = field(TIFFTAG_BITSPERSAMPLE), samples_ = field(TIFFTAG_SAMPLESPERPIXEL);
    photometric_ = PHOTOMETRIC_MINISBLACK;
    TIFFGetField(tiff_.get(), TIFFTAG_PHOTOMETRIC, &photometric_);
    if (photometric_ == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG && !separate) {
      TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      photometric_ = PHOTOMETRIC_RGB;
    }
    const bool gray = photometric_ == PHOTOMETRIC_MINISBLACK || photometric_ == PHOTOMETRIC_MINISWHITE;
    const bool palette = photometric_ == PHOTOMETRIC_PALETTE;
    const bool rgb = photometric_ == PHOTOMETRIC_RGB, cmyk = photometric_ == PHOTOMETRIC_SEPARATED;
    colours_ = rgb ? 3 : cmyk ? 4 : 1;
    check(gray || palette || rgb || cmyk, name_, ": a TIFF with colour space ", photometric_,
          " is not supported, must be gray, palette, RGB or CMYK");
    const uint16_t format = field(TIFFTAG_SAMPLEFORMAT);
    if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID)
      fail(name_, ": a TIFF of ", bits_, "-bit ",
           format == SAMPLEFORMAT_IEEEFP ? "floating-point"
           : format == SAMPLEFORMAT_INT  ? "signed"
                                         : "complex",
           " numbers has no range that is white: scale it to unsigned numbers of 8 or 16 bits");
    const bool narrow = bits_ == 1 || bits_ == 2 || bits_ == 4 || bits_ == 8;
    const bool known = palette ? narrow : gray ? narrow || wide() : bits_ == 8 || wide();
    check(known, name_, ": a TIFF of ", bits_, " bits with colour space ", photometric_,
          " is not supported, must have 8 to 16 or 32 bits (gray and palettes: 1, 2, 4 too)");
    check(samples_ >= colours_ && samples_ <= kMostSamples, name_, ": broken TIFF (", samples_,
          " numbers a pixel)");
    uint16_t extras = 0, *kinds = nullptr;
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_EXTRASAMPLES, &extras, &kinds);
    multiplied_ = rgb && extras > 0 && kinds[0] == EXTRASAMPLE_ASSOCALPHA && samples_ > 3;
    if (palette) read_palette();
  }

  // Reads the sizes of the strips or tiles.
  void read_blocks(bool separate) {
    planes_ = separate ? samples_ : 1;
    buffers_.resize(static_cast<size_t>(planes_));
    tiled_ = TIFFIsTiled(tiff_.get()) != 0;
    uint32_t width = static_cast<uint32_t>(width_), height = 0;
    if (tiled_) {
      TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &width);
      TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &height);
      check_size(width, height, std::max(int64_t{width_} * height_, kMostBlockPixels), name_ + ": a tile");
    } else {
      TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &height);
      height = std::min(height, static_cast<uint32_t>(height_));
    }
    check(width > 0 && height > 0, name_, ": broken TIFF (strips or tiles without pixels)");
    block_width_ = static_cast<int>(width), block_height_ = static_cast<int>(height);
  }

  void read_palette() {
    std::array<uint16_t*, 3> maps{};
    if (!TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &maps[0], &maps[1], &maps[2]))
      fail_with("it has no palette");
    const size_t count = size_t{1} << bits_;
    // Some writers store 8 bits although 16 are declared.
    const bool wide = std::any_of(maps.begin(), maps.end(), [count](const uint16_t* map) {
      return std::any_of(map, map + count, [](uint16_t value) { return value > 255; });
    });
    for (size_t i = 0; i < count; ++i)
      for (size_t c = 0; c < 3; ++c) palette_[i][c] = static_cast<uint8_t>(maps[c][i] >> (wide ? 8 : 0));
  }

  void read_block(int left, int top, int plane, size_t stride, int rows) {
    std::vector<uint8_t>& buffer = buffers_[static_cast<size_t>(plane)];
    const auto size = static_cast<tmsize_t>(buffer.size());
    const auto x = static_cast<uint32_t>(left), y = static_cast<uint32_t>(top);
    const auto sample = static_cast<uint16_t>(plane);
    const tmsize_t read =
        tiled_ ? TIFFReadEncodedTile(tiff_.get(), TIFFComputeTile(tiff_.get(), x, y, 0, sample),
                                     buffer.data(), size)
               : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), y, sample), buffer.data(),
                                      size);
    if (read < 0 || static_cast<size_t>(read) < stride * static_cast<size_t>(rows))
      fail_with("a strip or tile cannot be decoded");
  }

  // Returns sample s of pixel x of the row at byte `row` of the buffers.
  unsigned value(size_t row, int x, int s) const {
    const uint8_t* line = buffers_[planes_ > 1 ? static_cast<size_t>(s) : 0].data() + row;
    const auto i = static_cast<size_t>(planes_ > 1 ? x : x * samples_ + s);
    if (bits_ == 8) return line[i];
    if (bits_ == 16) {
      uint16_t wide;
      std::memcpy(&wide, line + 2 * i, sizeof wide);
      return wide;
    }
    if (bits_ == 32) {
      uint32_t widest;
      std::memcpy(&widest, line + 4 * i, sizeof widest);
      return widest;
    }
    // Packed from the highest bit; 9 to 15 bits are in two or three bytes.
    const size_t bits = static_cast<size_t>(bits_), first = i * bits, last = first + bits - 1;
    unsigned value = 0;
    for (size_t byte = first / 8; byte <= last / 8; ++byte) value = value << 8 | line[byte];
    return value >> (7 - last % 8) & ((1u << bits) - 1);
  }

  bool wide() const { return (bits_ > 8 && bits_ <= 16) || bits_ == 32; }

  // Returns a number in 8 bits: the upper ones, or fewer scaled up.
  uint8_t scaled(unsigned number) const {
    return static_cast<uint8_t>(bits_ >= 8 ? number >> (bits_ - 8) : number * 255 / ((1u << bits_) - 1));
  }

  void convert(size_t row, int count, uint8_t* to) const {
    for (int x = 0; x < count; ++x, to += 3) {
      if (colours_ > 1) {
        convert_colour(row, x, to);
      } else if (photometric_ == PHOTOMETRIC_PALETTE) {
        std::copy_n(palette_[value(row, x, 0)].begin(), 3, to);
      } else {
        const uint8_t gray = scaled(value(row, x, 0));
        std::fill_n(to, 3, static_cast<uint8_t>(photometric_ == PHOTOMETRIC_MINISWHITE ? 255 - gray : gray));
      }
    }
  }

  void convert_colour(size_t row, int x, uint8_t* to) const {
    std::array<int, 4> parts{};
    for (int s = 0; s < (multiplied_ ? 4 : colours_); ++s)
      parts[static_cast<size_t>(s)] = scaled(value(row, x, s));
    for (size_t c = 0; c < 3; ++c) {
      int part = parts[c];
      if (colours_ == 4) part = std::max(0, 255 - parts[3] - multiply255(part, 255 - parts[3]));
      if (multiplied_) part = parts[3] == 0 ? 0 : std::min(255, 255 * part / parts[3]);
      to[c] = static_cast<uint8_t>(part);
    }
  }

  const std::string& name_;
  Stream stream_;
  std::unique_ptr<TIFF, Closer> tiff_;
  int width_ = 0, height_ = 0, orientation_ = 1;
  int bits_ = 0, samples_ = 0, colours_ = 0, planes_ = 1;
  uint16_t photometric_ = 0;
  bool multiplied_ = false, tiled_ = false;  // colours are multiplied by alpha
  int block_width_ = 0, block_height_ = 0;   // size of a strip or tile
  std::array<std::array<uint8_t, 3>, 256> palette_{};
  std::vector<std::vector<uint8_t>> buffers_;  // a strip or tile per plane
};

}  // namespace

ImageInfo tiff_info(Bytes bytes, const std::string& name) {
  const Reader file(bytes, name);
  return {file.width(), file.height(), "tiff", file.orientation()};
}

void decode_tiff(Bytes bytes, const std::string& name, const Box& box, Image& out) {
  Image whole = Reader(bytes, name).decode();
  out = box == Box{0, 0, whole.width, whole.height} ? std::move(whole) : cut(whole, box);
}

void decode_tiff_bands(Bytes bytes, const std::string& name, int bands, Image& out) {
  Reader file(bytes, name);
  out = orient(file.decode_bands(bands), file.orientation());
}

Image decode_tiff_numbers(Bytes bytes, const std::string& name) {
  return Reader(bytes, name).decode_numbers();
}

}  // namespace tessera::codec
