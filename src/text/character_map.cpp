// SentencePiece's precompiled map of characters (Kudo & Richardson 2018).
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "text/tokeniser_steps.h"

namespace tessera::tokens {
namespace {

// A unit of the double array (Yata's Darts-clone): its label, whether it has a value, and its offset.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1 << 9)) >> 6); }

}  // namespace

CharacterMap::CharacterMap(std::string bytes, const std::string& where) {
  uint32_t size = 0;
  if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  if (bytes.size() < 4 || size > bytes.size() - 4 || size % 4 != 0 || size == 0)
    fail(where, ": the precompiled character map is damaged: its trie has ", size, " of ", bytes.size(),
         " bytes");
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  replacements_ = bytes.substr(4 + size);
  if (replacements_.empty() || replacements_.back() != '\0')
    fail(where, ": the precompiled character map is damaged: its last text has no end");
}

CharacterMap::Hit CharacterMap::find(std::string_view bytes, bool longest) const {
  Hit hit;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    node ^= byte;
    if (node >= units_.size() || byte == 0) break;
    const uint32_t unit = units_[node];
    if (label(unit) != byte) break;
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t value = units_[node] & 0x7FFFFFFF;
    if (value >= replacements_.size()) break;
    hit = {std::string_view(replacements_.data() + value), i + 1};  // ends at a NUL
    if (!longest) break;
  }
  return hit;
}

CharacterMap CharacterMap::of_base64(std::string_view text, const std::string& where) {
  const auto bytes = from_base64(text);
  if (!bytes) fail(where, ": the precompiled character map is not base64");
  return {std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()), where};
}

}  // namespace tessera::tokens
