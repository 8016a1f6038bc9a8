// Baseline Huffman decoding for image_jpeg.cpp, about 1.7 times as fast as libjpeg-turbo's, which takes most
// of the time of reading a JPEG. It replaces libjpeg's entropy decoder through the interface between
// libjpeg's modules (jpegint.h); the rest remains libjpeg's.
//
// It takes over only in the plain case: one scan of all components, no restart markers, data that end in EOI.
// If the data are unusual (an invalid code, too few bits), libjpeg decodes the image again without
// this.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::codec {

// One Huffman table as a lookup by the next kHuffmanBits bits. An entry packs, from the lowest byte up: bits
// of code and value together; bits of the code; 63 - bits of the value; advance of the coefficient index
// before the store (the run). Special advances: kEndOfBlock ends the block, kLongCode means no code that
// short.
inline constexpr int kHuffmanBits = 11;
inline constexpr uint32_t kEndOfBlock = 128, kLongCode = 255;

struct HuffmanTable {
  uint32_t entries[1 << kHuffmanBits];
  // Longer codes, in canonical form: a code of `length` bits is valid if it is at most last[length]; its
  // symbol is symbols[code + offset[length]].
  int32_t last[18];
  int32_t offset[17];
  uint8_t symbols[256];
};

// `counts` is indexed 1 … 16, followed by the symbols, as in JHUFF_TBL. Returns false if the table is invalid
// for 8-bit baseline images (values of more than 11 bits in DC, 10 in AC, runs without a value).
bool build_huffman_table(const uint8_t* counts, const uint8_t* symbols, bool dc, HuffmanTable& table);

// The blocks of one MCU in order.
struct HuffmanLayout {
  int blocks = 0;
  int component[10] = {};
  const HuffmanTable* dc[10] = {};
  const HuffmanTable* ac[10] = {};
};

// The decoding position. `at` points into the entropy-coded bytes without stuffing; kHuffmanSlack zero bytes
// follow `end`.
inline constexpr size_t kHuffmanSlack = 4096;
struct HuffmanState {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  uint64_t buffer = 0;  // the next bits, from the highest down
  int bits = 0;         // number of valid bits
  int last_dc[4] = {};
};

// Decodes one MCU into its blocks (64 zeroed coefficients each, natural order), or skips it if `blocks` is
// null. Returns false on invalid data.
using HuffmanDecoder = bool (*)(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
bool decode_mcu_plain(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
#if defined(__x86_64__)
bool decode_mcu_bmi2(HuffmanState& state, const HuffmanLayout& layout, int16_t* const* blocks);
#endif

}  // namespace tessera::codec
