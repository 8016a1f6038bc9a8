// gzip: bounded inflating of whole buffers, and a streaming deflater. Check sums and lengths are verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Bounds that are checked while inflating, so that a small file cannot fill memory or disk. `max_ratio`
// (unpacked to packed) counts only once 64 MiB are unpacked: deflate itself allows 1032, archives of pictures
// stay under 20.
struct InflateLimits {
  uint64_t max_bytes = uint64_t{64} << 30;
  double max_ratio = 250;
};

// True if the bytes start as a gzip file does.
bool is_gzip(std::span<const std::byte> bytes);

// The unpacked bytes of a gzip file of one or more members. `name` is for error lines: not gzip, truncated,
// damaged, beyond the limits.
std::vector<std::byte> inflate_gzip(std::span<const std::byte> packed, const std::string& name,
                                    const InflateLimits& limits = {uint64_t{4} << 30, 1100});

// The same in pieces: `sink` gets each piece (up to 1 MiB) in turn.
void inflate_gzip(std::span<const std::byte> packed, const std::string& name, const InflateLimits& limits,
                  const std::function<void(std::span<const std::byte>)>& sink);

// Deflates what it is given into one gzip member (no name, no time: the same input gives the same bytes).
class GzipEncoder {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit GzipEncoder(Sink sink, int level = 6);
  ~GzipEncoder();
  GzipEncoder(const GzipEncoder&) = delete;
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
