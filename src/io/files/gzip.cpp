#include "io/files/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr uint64_t kRatioCountsFrom = uint64_t{64} << 20;
constexpr size_t kMaxInput = size_t{1} << 30;  // zlib counts input in 32 bits
constexpr int kGzipWindow = 15 + 16;           // the largest window, with gzip's header and trailer

Bytef* input(std::span<const std::byte> bytes) {  // zlib takes no const, but does not write to it
  return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
}

class Inflater {
 public:
  explicit Inflater(const std::string& name) {
    check(inflateInit2(&stream, kGzipWindow) == Z_OK, name, ": not enough memory to inflate");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  z_stream stream{};
};

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

void inflate_gzip(std::span<const std::byte> packed, const std::string& name, const InflateLimits& limits,
                  const std::function<void(std::span<const std::byte>)>& sink) {
  check(is_gzip(packed), name, ": is no gzip file");
  Inflater inflater(name);
  z_stream& stream = inflater.stream;
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t done = 0;
  size_t used = 0;  // input bytes passed to zlib so far
  while (true) {
    if (stream.avail_in == 0) {
      const size_t take = std::min(packed.size() - used, kMaxInput);
      stream.next_in = input(packed.subspan(used));
      stream.avail_in = static_cast<uInt>(take);
      used += take;
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    const size_t made = piece.size() - stream.avail_out;
    const size_t at = used - stream.avail_in;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      fail(name, ": gzip data damaged at byte ", at, stream.msg ? ": " : "", stream.msg ? stream.msg : "");
    done += made;
    check(done <= limits.max_bytes, name, ": inflates to more than ", human_bytes(limits.max_bytes),
          ", the limit here");
    check(done <= kRatioCountsFrom || static_cast<double>(done) <= limits.max_ratio * static_cast<double>(at),
          name, ": inflates more than ", limits.max_ratio, "-fold, refused as a decompression bomb");
    if (made > 0) sink({piece.data(), made});
    if (result == Z_STREAM_END) {
      if (at == packed.size()) return;
      // Another member, or the zero padding of some programs.
      const auto rest = packed.subspan(at);
      if (!is_gzip(rest)) {
        check(std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; }), name,
              ": bytes after the end of the gzip data at byte ", at);
        return;
      }
      inflateReset(&stream);
    } else if (made == 0 && at == packed.size()) {
      fail(name, ": gzip data truncated, ends at byte ", at);
    }
  }
}

std::vector<std::byte> inflate_gzip(std::span<const std::byte> packed, const std::string& name,
                                    const InflateLimits& limits) {
  std::vector<std::byte> out;
  inflate_gzip(packed, name, limits, [&](auto piece) { out.insert(out.end(), piece.begin(), piece.end()); });
  return out;
}

struct GzipEncoder::State {
  Sink sink;
  z_stream stream{};
  std::vector<std::byte> piece = std::vector<std::byte>(kPieceBytes);
  bool finished = false;

  void run(std::span<const std::byte> bytes, int flush) {
    stream.next_in = input(bytes);
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      deflate(&stream, flush);  // fails only on misuse
      if (const size_t made = piece.size() - stream.avail_out; made > 0) sink({piece.data(), made});
    } while (stream.avail_out == 0);
  }
};

GzipEncoder::GzipEncoder(Sink sink, int level) : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  check(deflateInit2(&state_->stream, level, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK,
        "not enough memory to deflate");
}

GzipEncoder::~GzipEncoder() { deflateEnd(&state_->stream); }

void GzipEncoder::write(std::span<const std::byte> bytes) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kMaxInput)))
    state_->run(bytes.first(std::min(bytes.size(), kMaxInput)), Z_NO_FLUSH);
}

void GzipEncoder::finish() {
  if (!state_->finished) state_->run({}, Z_FINISH);
  state_->finished = true;
}

}  // namespace tessera
