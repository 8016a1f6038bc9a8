// Baseline Huffman decoding for image_jpeg.cpp, some 1.7 times as fast as libjpeg-turbo's, which is where
// most of the time of reading a JPEG goes. It stands in for libjpeg's entropy decoder through the interface
// between libjpeg's modules (jpegint.h); everything else stays libjpeg's.
//
// It takes over only where all is plain: one scan of all components, no restart markers, data that end in
// EOI. Whatever is odd in the data (an invalid code, too few bits) is left to libjpeg, by decoding the
// picture again without this.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::codec {

// One Huffman table as a lookup by the next kHuffmanBits bits. An entry packs, from the lowest byte up: bits
// of code and value together; bits of the code; 63 - bits of the value; how far the index of the coefficient
// moves before the store (the run; kEndOfBlock ends the block, kLongCode is no code that short).
inline constexpr int kHuffmanBits = 11;
inline constexpr uint32_t kEndOfBlock = 128, kLongCode = 255;

struct HuffmanTable {
  uint32_t entries[1 << kHuffmanBits];
  // Longer codes, canonically: a code of `length` bits is valid if it is at most last[length]; its symbol is
  // symbols[code + offset[length]].
  int32_t last[18];
  int32_t offset[17];
  uint8_t symbols[256];
};

// `counts` is indexed 1 … 16 and followed by the symbols, as in JHUFF_TBL. False if the table makes no sense
// for baseline pictures of 8 bits (values of more than 11 bits in DC, 10 in AC, runs without a value).
bool build_huffman_table(const uint8_t* counts, const uint8_t* symbols, bool dc, HuffmanTable& table);

// The blocks of one MCU in their order.
struct HuffmanLayout {
  int blocks = 0;
  int component[10] = {};
  const HuffmanTable* dc[10] = {};
  const HuffmanTable* ac[10] = {};
};

// Where decoding stands. `at` points into the entropy-coded bytes without their stuffing; behind `end` lie
// kHuffmanSlack bytes of zeros.
inline constexpr size_t kHuffmanSlack = 4096;
struct HuffmanState {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  uint64_t buffer = 0;  // the next bits, from the highest down
  int bits = 0;         // how many of them are valid
  int last_dc[4] = {};
};

// Decodes one MCU into its blocks (64 zeroed coefficients each, natural order), or past it if `blocks` is
// null. False if the data are not what they should be.
using HuffmanDecoder = bool (*)(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
bool decode_mcu_plain(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
#if defined(__x86_64__)
bool decode_mcu_bmi2(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
#endif

}  // namespace tessera::codec
