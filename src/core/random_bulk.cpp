#include "core/random.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "core/threads.h"

namespace tessera {
namespace {

constexpr size_t kLanes = 16;  // blocks of four words computed in parallel

// Computes blocks `first`, first + 1, … of that key; bit for bit philox4x32().
TESSERA_FOR_EACH_ISA
void philox_blocks(uint64_t first, uint64_t key, uint32_t* __restrict out, size_t blocks) {
  for (size_t done = 0; done < blocks; done += kLanes) {
    uint32_t a[kLanes], b[kLanes], c[kLanes], d[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t counter = first + done + i;
      a[i] = static_cast<uint32_t>(counter), b[i] = static_cast<uint32_t>(counter >> 32), c[i] = 0, d[i] = 0;
    }
    uint32_t low_key = static_cast<uint32_t>(key), high_key = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < kLanes; ++i) {
        const uint64_t low = uint64_t{0xD2511F53u} * a[i], high = uint64_t{0xCD9E8D57u} * c[i];
        a[i] = static_cast<uint32_t>(high >> 32) ^ b[i] ^ low_key;
        b[i] = static_cast<uint32_t>(high);
        c[i] = static_cast<uint32_t>(low >> 32) ^ d[i] ^ high_key;
        d[i] = static_cast<uint32_t>(low);
      }
      low_key += 0x9E3779B9u, high_key += 0xBB67AE85u;
    }
    uint32_t* to = out + 4 * done;
    for (size_t i = 0; i < kLanes; ++i)
      to[4 * i] = a[i], to[4 * i + 1] = b[i], to[4 * i + 2] = c[i], to[4 * i + 3] = d[i];
  }
}

TESSERA_FOR_EACH_ISA
void scaled_words(const uint32_t* __restrict words, double low, double step, double* __restrict out,
                  size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = low + step * static_cast<double>(words[i]);
}

// Computes log(u) for u in (0, 1]: u = m 2^e with m in [1/sqrt 2, sqrt 2), and log m = 2 artanh((m - 1) / (m
// + 1)).
inline float log_of(float u) {
  int32_t bits;
  memcpy(&bits, &u, sizeof bits);
  const int32_t exponent = (bits - 0x3F3504F3) >> 23;
  bits -= static_cast<int32_t>(static_cast<uint32_t>(exponent) << 23);
  float m;
  memcpy(&m, &bits, sizeof m);
  const float s = (m - 1) / (m + 1), q = s * s;
  const float series = 1 + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9))));
  return static_cast<float>(exponent) * 0.693147181f + 2 * s * series;
}

// Computes two normal numbers from two words: sqrt(-2 log u) (cos 2 pi v, sin 2 pi v). The angle is reduced
// to an eighth of the circle about a multiple of a quarter; Taylor series are short there.
TESSERA_FOR_EACH_ISA
void normal_pairs(const uint32_t* __restrict first, const uint32_t* __restrict second,
                  double* __restrict cosines, double* __restrict sines, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    const float u = (static_cast<float>(static_cast<int32_t>(first[i] >> 1)) + 0.5f) * 0x1p-31f;
    const float radius = sqrtf(-2 * log_of(u < 1 ? u : 1));
    const auto quarter = static_cast<int32_t>((second[i] + 0x20000000u) >> 30);
    const auto rest = static_cast<int32_t>(second[i] - (static_cast<uint32_t>(quarter) << 30));
    const float x = static_cast<float>(rest) * (6.28318531f * 0x1p-32f), q = x * x;
    const float sine =
        x * (1 + q * (-1.0f / 6 + q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880)))));
    const float cosine = 1 + q * (-0.5f + q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320))));
    const bool swapped = (quarter & 1) != 0;
    const float c = swapped ? -sine : cosine, s = swapped ? cosine : sine;
    const float sign = (quarter & 2) != 0 ? -radius : radius;
    cosines[i] = static_cast<double>(sign * c);
    sines[i] = static_cast<double>(sign * s);
  }
}

}  // namespace

std::vector<uint32_t> bulk_words(RandomStream& stream, size_t count) {
  const size_t blocks = (count + 4 * kLanes - 1) / (4 * kLanes) * kLanes;
  std::vector<uint32_t> words(4 * blocks);
  philox_blocks(0, stream.next_u64(), words.data(), blocks);
  words.resize(count);
  return words;
}

std::vector<double> bulk_uniform(RandomStream& stream, size_t count, double low, double high) {
  constexpr size_t kBlocks = 32 * kLanes;  // their words fit into the L1 cache
  const uint64_t key = stream.next_u64();
  std::vector<double> numbers(count);
  std::array<uint32_t, 4 * kBlocks> words;
  for (size_t done = 0; done < count; done += words.size()) {
    philox_blocks(done / 4, key, words.data(), kBlocks);
    scaled_words(words.data(), low, (high - low) * 0x1p-32, numbers.data() + done,
                 std::min(words.size(), count - done));
  }
  return numbers;
}

std::vector<double> bulk_normal(RandomStream& stream, size_t count) {
  const size_t pairs = (count + 1) / 2;
  const std::vector<uint32_t> words = bulk_words(stream, 2 * pairs);
  std::vector<double> numbers(2 * pairs);
  normal_pairs(words.data(), words.data() + pairs, numbers.data(), numbers.data() + pairs, pairs);
  numbers.resize(count);
  return numbers;
}

}  // namespace tessera
