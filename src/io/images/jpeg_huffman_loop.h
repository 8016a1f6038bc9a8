// The decoding loop of jpeg_huffman.h, compiled once per instruction set into the function
// TESSERA_DECODE_MCU. Includes C headers only.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "io/images/jpeg_huffman.h"

namespace tessera::codec {
namespace {

// The natural position of the coefficient at each zigzag index.
constexpr uint8_t kNatural[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                  35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                  58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

struct Bits {
  const uint8_t* at;
  uint64_t buffer;
  int count;

  // Fills up to at least 56 bits. Reads 8 bytes and advances by those that fit.
  void refill() {
    uint64_t next;
    memcpy(&next, at, sizeof next);
    buffer |= __builtin_bswap64(next) >> count;
    at += (63 - count) >> 3;
    count |= 56;
  }
  void drop(uint32_t n) {
    buffer <<= n & 63;
    count -= static_cast<int>(n & 63);
  }
};

// Returns the entry of a code longer than the lookup, or kLongCode. Leaves at least 56 bits.
inline uint32_t long_code(Bits& bits, const HuffmanTable& table, bool dc) {
  bits.refill();
  for (int length = kHuffmanBits + 1; length <= 16; ++length) {
    const int32_t code = static_cast<int32_t>(bits.buffer >> (64 - length));
    if (code > table.last[length]) continue;
    const uint8_t symbol = table.symbols[(code + table.offset[length]) & 255];
    const uint32_t size = dc ? symbol : symbol & 15u, run = dc ? 0u : symbol >> 4;
    const uint32_t advance = !dc && symbol == 0 ? kEndOfBlock : run;
    return (static_cast<uint32_t>(length) + size) | static_cast<uint32_t>(length) << 8 | (63 - size) << 16 |
           advance << 24;
  }
  return kLongCode << 24;
}

// Returns the signed value after a code: n bits that begin with 0 count from -(2^n - 1) up.
inline int value_of(uint64_t buffer, uint32_t entry) {
  const uint64_t rest = buffer << ((entry >> 8) & 63);
  const uint32_t shift = (entry >> 16) & 63;
  const int64_t negative = static_cast<int64_t>(~rest) >> 63;
  const int64_t range = (INT64_MAX >> shift);
  return static_cast<int>(static_cast<int64_t>((rest >> 1) >> shift) - (negative & range));
}

// Decodes one coefficient at index k or later and returns the next index. From kEndOfBlock on, the block has
// ended.
template <bool kStore>
inline uint32_t decode_coefficient(Bits& bits, const HuffmanTable& table, uint32_t k, int16_t* block) {
  uint32_t entry = table.entries[bits.buffer >> (64 - kHuffmanBits)];
  if (__builtin_expect(entry >> 24 == kLongCode, 0)) entry = long_code(bits, table, false);
  k += entry >> 24;
  if (k > 63) {
    bits.drop(entry);
    return k + 1;
  }
  if (kStore) block[kNatural[k]] = static_cast<int16_t>(value_of(bits.buffer, entry));
  bits.drop(entry);
  return k + 1;
}

template <bool kStore>
inline bool decode_block(Bits& bits, const HuffmanTable& dc, const HuffmanTable& ac, int& last_dc,
                         int16_t* block) {
  bits.refill();
  uint32_t entry = dc.entries[bits.buffer >> (64 - kHuffmanBits)];
  if (entry >> 24 == kLongCode) entry = long_code(bits, dc, true);
  if (entry >> 24 == kLongCode) return false;
  last_dc =
      static_cast<int>(static_cast<uint32_t>(last_dc) + static_cast<uint32_t>(value_of(bits.buffer, entry)));
  if (kStore) block[0] = static_cast<int16_t>(last_dc);
  bits.drop(entry);
  uint32_t k = 1;
  do {
    bits.refill();  // enough for two coefficients of at most 16 + 10 bits each
    k = decode_coefficient<kStore>(bits, ac, k, block);
    if (k > 63) break;
    k = decode_coefficient<kStore>(bits, ac, k, block);
  } while (k <= 63);
  // One past an end of block; one past kLongCode is not a code at all.
  return k == 64 || (k > kEndOfBlock && k <= kEndOfBlock + 64);
}

}  // namespace

bool TESSERA_DECODE_MCU(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks) {
  Bits bits{state.at, state.buffer, state.bits};
  for (int b = 0; b < layout.blocks; ++b) {
    int& last_dc = state.last_dc[layout.component[b]];
    const bool good = blocks ? decode_block<true>(bits, *layout.dc[b], *layout.ac[b], last_dc, blocks[b])
                             : decode_block<false>(bits, *layout.dc[b], *layout.ac[b], last_dc, nullptr);
    if (!good) return false;
  }
  state.at = bits.at;
  state.buffer = bits.buffer;
  state.bits = bits.count;
  return (bits.at - state.end) * 8 <= bits.count;  // no bit was taken after the end
}

}  // namespace tessera::codec
