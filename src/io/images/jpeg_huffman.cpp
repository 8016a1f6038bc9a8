#include "io/images/jpeg_huffman.h"

namespace tessera::codec {

namespace {

uint32_t entry_of(int length, uint8_t symbol, bool dc) {
  const uint32_t size = dc ? symbol : symbol & 15u, run = dc ? 0u : symbol >> 4;
  const uint32_t advance = !dc && symbol == 0 ? kEndOfBlock : run;
  return (static_cast<uint32_t>(length) + size) | static_cast<uint32_t>(length) << 8 | (63 - size) << 16 |
         advance << 24;
}

bool makes_sense(uint8_t symbol, bool dc) {
  if (dc) return symbol <= 11;
  const int size = symbol & 15, run = symbol >> 4;
  return size <= 10 && (size > 0 || run == 0 || run == 15);
}

}  // namespace

bool build_huffman_table(const uint8_t* counts, const uint8_t* symbols, bool dc, HuffmanTable& table) {
  for (uint32_t& entry : table.entries) entry = kLongCode << 24;
  int32_t code = 0;
  int used = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    table.offset[length] = used - code;
    table.last[length] = counts[length] ? code + counts[length] - 1 : -1;
    if (code + counts[length] > 1 << length || used + counts[length] > 256) return false;
    for (int i = 0; i < counts[length]; ++i, ++code, ++used) {
      const uint8_t symbol = symbols[used];
      if (!makes_sense(symbol, dc)) return false;
      table.symbols[used] = symbol;
      if (length > kHuffmanBits) continue;
      const int spare = kHuffmanBits - length;
      const uint32_t entry = entry_of(length, symbol, dc);
      for (int32_t e = code << spare; e < (code + 1) << spare; ++e) table.entries[e] = entry;
    }
  }
  return true;
}

}  // namespace tessera::codec

#define TESSERA_DECODE_MCU decode_mcu_plain
#include "io/images/jpeg_huffman_loop.h"
