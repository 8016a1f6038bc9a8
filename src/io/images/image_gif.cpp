// GIF through giflib: the first frame on its canvas, as in Pillow.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera::codec {

namespace {

int read_bytes(GifFileType* file, GifByteType* to, int count) {
  auto& rest = *static_cast<Bytes*>(file->UserData);
  const size_t taken = std::min(rest.size(), static_cast<size_t>(count));
  std::memcpy(to, rest.data(), taken);
  rest = rest.subspan(taken);
  return static_cast<int>(taken);
}

// Reads everything before the pixels of the first frame.
class Reader {
 public:
  Reader(Bytes bytes, const std::string& name) : name_(name), rest_(bytes) {
    int error = 0;
    file_.reset(DGifOpen(&rest_, read_bytes, &error));
    if (!file_) fail_with(error);
    for (GifRecordType kind = UNDEFINED_RECORD_TYPE; kind != IMAGE_DESC_RECORD_TYPE;) {
      run(DGifGetRecordType(file_.get(), &kind));
      check(kind != TERMINATE_RECORD_TYPE, name_, ": GIF without an image");
      if (kind == EXTENSION_RECORD_TYPE) read_extension();
    }
    run(DGifGetImageDesc(file_.get()));
    check(frame().Width > 0 && frame().Height > 0, name_, ": broken GIF (a frame of ", frame().Width, "x",
          frame().Height, ")");
  }

  // A frame that exceeds the canvas enlarges it.
  int width() const { return std::max<int>(file_->SWidth, frame().Left + frame().Width); }
  int height() const { return std::max<int>(file_->SHeight, frame().Top + frame().Height); }

  Image decode() {
    const Palette palette = read_palette();
    Image canvas(width(), height());
    // Around the frame the canvas has the transparent colour, or the first one if there is none.
    for (size_t i = 0; i < canvas.pixels.size(); ++i) canvas.pixels[i] = palette[transparent_][i % 3];
    std::vector<GifByteType> line(static_cast<size_t>(frame().Width));
    const auto read_line = [&](int y) {
      run(DGifGetLine(file_.get(), line.data(), frame().Width));
      uint8_t* to = canvas.row(frame().Top + y) + 3 * static_cast<ptrdiff_t>(frame().Left);
      for (const GifByteType index : line) to = std::copy_n(palette[index].begin(), 3, to);
    };
    constexpr std::array<std::array<int, 2>, 4> kPasses = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
    if (frame().Interlace)
      for (const auto& [first, step] : kPasses)
        for (int y = first; y < frame().Height; y += step) read_line(y);
    else
      for (int y = 0; y < frame().Height; ++y) read_line(y);
    return canvas;
  }

 private:
  using Palette = std::array<std::array<uint8_t, 3>, 256>;

  const GifImageDesc& frame() const { return file_->Image; }

  [[noreturn]] void fail_with(int error) const {
    if (error == D_GIF_ERR_READ_FAILED || error == D_GIF_ERR_EOF_TOO_SOON || rest_.empty())
      fail(name_, ": truncated GIF, the file ends before the image does");
    const char* said = GifErrorString(error);
    fail(name_, ": broken GIF (", said ? said : "its blocks make no sense", ")");
  }
  void run(int result) const {
    if (result != GIF_OK) fail_with(file_->Error);
  }

  void read_extension() {
    int code = 0;
    GifByteType* block = nullptr;  // its length, then its bytes
    run(DGifGetExtension(file_.get(), &code, &block));
    if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4 && block[1] & 1) transparent_ = block[4];
    while (block) run(DGifGetExtensionNext(file_.get(), &block));
  }

  // Without a palette, or with an ascending gray one, indices are gray values.
  Palette read_palette() const {
    Palette grays{}, palette{};
    for (size_t i = 0; i < grays.size(); ++i) grays[i].fill(static_cast<uint8_t>(i));
    const ColorMapObject* map = frame().ColorMap ? frame().ColorMap : file_->SColorMap;
    const int count = map ? std::min(map->ColorCount, 256) : 0;
    for (int i = 0; i < count; ++i) {
      const GifColorType& colour = map->Colors[i];
      palette[static_cast<size_t>(i)] = {colour.Red, colour.Green, colour.Blue};
    }
    return std::equal(palette.begin(), palette.begin() + count, grays.begin()) ? grays : palette;
  }

  struct Closer {
    void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
  };
  const std::string& name_;
  Bytes rest_;
  std::unique_ptr<GifFileType, Closer> file_;
  uint8_t transparent_ = 0;
};

}  // namespace

ImageInfo gif_info(Bytes bytes, const std::string& name) {
  const Reader file(bytes, name);
  return {file.width(), file.height(), "gif", 1};
}

void decode_gif(Bytes bytes, const std::string& name, const Box& box, Image& out) {
  Image canvas = Reader(bytes, name).decode();
  out = box == Box{0, 0, canvas.width, canvas.height} ? std::move(canvas) : cut(canvas, box);
}

}  // namespace tessera::codec
