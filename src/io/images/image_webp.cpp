// WebP through libwebp: lossy, lossless, and the first frame of an animation, as in Pillow.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "io/images/image_codec.h"

namespace tessera::codec {

namespace {

struct Demuxer {
  Demuxer(Bytes bytes, const std::string& name) {
    const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    WebPDemuxState state;
    demux.reset(WebPDemuxPartial(&data, &state));
    if (state == WEBP_DEMUX_PARSING_HEADER) fail(name, ": truncated WebP, the file ends in its headers");
    check(demux && state != WEBP_DEMUX_PARSE_ERROR, name, ": broken WebP (its chunks make no sense)");
    complete = state == WEBP_DEMUX_DONE;
  }
  int value(WebPFormatFeature feature) const { return static_cast<int>(WebPDemuxGetI(demux.get(), feature)); }

  struct Deleter {
    void operator()(WebPDemuxer* d) const { WebPDemuxDelete(d); }
  };
  std::unique_ptr<WebPDemuxer, Deleter> demux;
  bool complete = false;
};

}  // namespace

ImageInfo webp_info(Bytes bytes, const std::string& name) {
  const Demuxer file(bytes, name);
  ImageInfo info{file.value(WEBP_FF_CANVAS_WIDTH), file.value(WEBP_FF_CANVAS_HEIGHT), "webp", 1};
  Orientation orientation;
  for (const char* kind : {"EXIF", "XMP "}) {
    WebPChunkIterator chunk;
    if (!WebPDemuxGetChunk(file.demux.get(), kind, 1, &chunk)) continue;
    const Bytes content(reinterpret_cast<const std::byte*>(chunk.chunk.bytes), chunk.chunk.size);
    kind[0] == 'E' ? orientation.add_exif(content) : orientation.add_xmp(content);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  info.orientation = orientation.value();
  return info;
}

void decode_webp(Bytes bytes, const std::string& name, const Box& box, Image& out) {
  const Demuxer file(bytes, name);
  check(file.complete, name, ": truncated WebP, the file ends before the image does");
  WebPIterator frame;
  check(WebPDemuxGetFrame(file.demux.get(), 1, &frame) != 0, name, ": WebP without an image");
  // The canvas around a frame is black, as in Pillow.
  Image canvas(file.value(WEBP_FF_CANVAS_WIDTH), file.value(WEBP_FF_CANVAS_HEIGHT));
  const bool fits = frame.x_offset >= 0 && frame.y_offset >= 0 &&
                    frame.x_offset + frame.width <= canvas.width &&
                    frame.y_offset + frame.height <= canvas.height;
  const uint8_t* decoded = nullptr;
  if (fits) {
    uint8_t* first = canvas.row(frame.y_offset) + static_cast<ptrdiff_t>(frame.x_offset) * 3;
    const size_t room = static_cast<size_t>(canvas.pixels.data() + canvas.pixels.size() - first);
    decoded = WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, first, room, canvas.width * 3);
  }
  WebPDemuxReleaseIterator(&frame);
  check(decoded, name, ": broken WebP (its pixels cannot be decoded)");
  out = box == Box{0, 0, canvas.width, canvas.height} ? std::move(canvas) : cut(canvas, box);
}

}  // namespace tessera::codec
