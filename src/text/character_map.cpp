// SentencePiece's precompiled map of characters (Kudo & Richardson 2018), and base64, in which it travels.
#include <array>
#include <cstring>

#include "core/error.h"
#include "text/normaliser.h"

namespace tessera::tokens {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// A unit of the double array (Yata's Darts-clone): its label, whether a value hangs on it, and its offset.
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

std::string from_base64(std::string_view text, const std::string& where) {
  std::array<int, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) fail(where, ": the precompiled character map is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t here = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < here ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += j <= here ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

}  // namespace tessera::tokens
