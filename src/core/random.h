// Random numbers that depend on their purpose, never on the thread or time of the draw.
//
// A stream is keyed by (seed, purpose, a, b): the same key gives the same numbers on any thread, rank or
// resumed run. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// Philox4x32-10: returns four random words for a counter and a key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class RandomStream {
 public:
  // `purpose` is the use ("shuffle", "crop", "drop_path"); `a` and `b` locate it (epoch and sample, step and
  // layer).
  RandomStream(uint64_t seed, std::string_view purpose, uint64_t a = 0, uint64_t b = 0);

  uint32_t next_u32();
  uint64_t next_u64();
  double uniform();                            // [0, 1), 53 bits
  double uniform(double low, double high);     // [low, high)
  double normal();                             // mean 0, variance 1 (Box-Muller)
  uint64_t below(uint64_t bound);              // 0 … bound-1 without bias; bound > 0
  int64_t integer(int64_t low, int64_t high);  // low … high, both included
  double gamma(double shape);                  // Marsaglia-Tsang, any shape > 0
  double beta(double a, double b);             // from two gammas
  bool chance(double probability) { return uniform() < probability; }

  // Returns a Fisher-Yates shuffle of 0 … n-1.
  std::vector<int64_t> permutation(int64_t n);

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
  bool has_spare_ = false;
  double spare_ = 0;
};

// Bulk random numbers for image noise: about ten times as fast as single calls.

// Returns Philox4x32-10 words. The stream supplies the key, so they depend only on its position.
std::vector<uint32_t> bulk_words(RandomStream& stream, size_t count);
// Uniform in [low, high), in steps of 2^-32 of the range.
std::vector<double> bulk_uniform(RandomStream& stream, size_t count, double low = 0, double high = 1);
// Mean 0, variance 1, by Box-Muller in float32; absolute values are at most 6.7.
std::vector<double> bulk_normal(RandomStream& stream, size_t count);

}  // namespace tessera
