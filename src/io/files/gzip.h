// gzip: bounded inflating of whole buffers, and a streaming deflater. Verifies checksums and lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Limits while inflating, so that a small file cannot fill memory or disk. `max_ratio` (unpacked to packed)
// applies from 64 MiB of unpacked bytes on: deflate reaches up to 1032, image archives under 20.
struct InflateLimits {
  uint64_t max_bytes = uint64_t{64} << 30;
  double max_ratio = 250;
};

// True if the bytes start like a gzip file.
bool is_gzip(std::span<const std::byte> bytes);

// Returns the unpacked bytes of a gzip file with one or more members. Throws with `name` in the message: not
// gzip, truncated, damaged, beyond the limits.
std::vector<std::byte> inflate_gzip(std::span<const std::byte> packed, const std::string& name,
                                    const InflateLimits& limits = {uint64_t{4} << 30, 1100});

// The same in pieces of up to 1 MiB, passed to `sink` in order.
void inflate_gzip(std::span<const std::byte> packed, const std::string& name, const InflateLimits& limits,
                  const std::function<void(std::span<const std::byte>)>& sink);

// Deflates its input into one gzip member (without name and time, so equal input gives equal bytes).
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
