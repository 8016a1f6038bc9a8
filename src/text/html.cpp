// Character references of HTML. The names come from `html_names.txt.gz` (tools/html_names), which is unpacked on
// first use.
#include <charconv>
#include <span>
#include <unordered_map>

#include "core/text.h"
#include "io/files/file.h"
#include "io/files/gzip.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

extern const unsigned char tessera_html_names[];
extern const size_t tessera_html_names_size;

namespace tessera::tokens {
namespace {

struct Names {
  // Names with their semicolon, if it is part of them, to characters.
  std::unordered_map<std::u32string, std::u32string> html, capitals;
};

Names read_names() {
  Names names;
  const std::span packed(tessera_html_names, tessera_html_names_size);
  const std::string all(as_text(inflate_gzip(std::as_bytes(packed), "the table of HTML's names")));
  for (const std::string& line : split(all, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> words = split(line, ' ');
    const bool capitals = words[0].starts_with('^');
    std::u32string characters;
    for (size_t i = 1; i < words.size(); ++i) {
      uint32_t value = 0;
      std::from_chars(words[i].data(), words[i].data() + words[i].size(), value, 16);
      characters += static_cast<char32_t>(value);
    }
    const std::u32string name = to_code_points_lossy(words[0].substr(capitals ? 1 : 0));
    (capitals ? names.capitals : names.html)[name] = characters;
  }
  return names;
}

const Names& names() {
  static const Names all = read_names();
  return all;
}

const std::u32string* find(const std::unordered_map<std::u32string, std::u32string>& in,
                           std::u32string_view name) {
  const auto found = in.find(std::u32string(name));
  return found == in.end() ? nullptr : &found->second;
}

// The replacement of a reference, and its length after the "&"; 0: it is none.
struct Resolved {
  std::u32string characters;
  size_t length = 0;
};

bool is_no_character(uint64_t value) {
  return (value >= 1 && value <= 8) || value == 0xB || (value >= 0xE && value < 0x20) || value == 0x7F ||
         (value >= 0xFDD0 && value <= 0xFDEF) || (value & 0xFFFE) == 0xFFFE;
}

std::u32string numbered(uint64_t value) {
  if (value >= 0x80 && value < 0xA0) return {kWindows1252[value - 0x80]};
  if (value == 0 || value >= 0x110000 || (value >= 0xD800 && value < 0xE000)) return U"\uFFFD";
  if (is_no_character(value)) return {};
  return {static_cast<char32_t>(value)};
}

// Resolves "#39;" or "#x27;", with or without the semicolon.
Resolved numeric_reference(std::u32string_view rest) {
  if (rest.size() < 2 || rest[0] != '#') return {};
  const bool hex = rest[1] == 'x' || rest[1] == 'X';
  const size_t first = hex ? 2 : 1;
  size_t at = first;
  uint64_t value = 0;
  for (; at < rest.size(); ++at) {
    const char32_t c = rest[at] < 0x80 ? folded(rest[at]) : 0;
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(hex && c >= 'a' && c <= 'f')) break;
    if (value < 0x110000) value = value * (hex ? 16 : 10) + (digit ? c - '0' : c - 'a' + 10);
  }
  if (at == first) return {};
  if (at < rest.size() && rest[at] == ';') ++at;
  return {numbered(value), at};
}

Resolved named_reference(std::u32string_view rest) {
  constexpr size_t kLongest = 32;
  size_t end = 0;
  while (end < rest.size() && end < kLongest &&
         std::u32string_view(U"\t\n\f <&#;").find(rest[end]) == rest.npos)
    ++end;
  if (end == 0) return {};
  if (end < rest.size() && rest[end] == ';') ++end;
  if (const std::u32string* whole = find(names().html, rest.substr(0, end))) return {*whole, end};
  for (size_t length = end - 1; length > 1; --length)
    if (const std::u32string* part = find(names().html, rest.substr(0, length))) return {*part, length};
  return {};
}

// Replaces each reference for which `resolve`, given the text after its "&", finds characters.
template <class Resolve>
std::u32string replaced(std::u32string_view text, const Resolve& resolve) {
  std::u32string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&')
      if (const Resolved found = resolve(text.substr(i + 1)); found.length > 0) {
        out += found.characters;
        i += found.length;
        continue;
      }
    out += text[i];
  }
  return out;
}

bool is_letter_or_digit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

std::u32string resolve_references(std::u32string_view text) {
  return replaced(text, [](std::u32string_view rest) {
    const Resolved numeric = numeric_reference(rest);
    return numeric.length > 0 ? numeric : named_reference(rest);
  });
}

std::u32string resolve_closed_references(std::u32string_view text) {
  constexpr size_t kLongest = 24;
  return replaced(text, [](std::u32string_view rest) -> Resolved {
    const size_t first = rest.starts_with('#') ? 1 : 0;
    size_t end = first;
    while (end < rest.size() && end - first < kLongest && is_letter_or_digit(rest[end])) ++end;
    if (end == first || end == rest.size() || rest[end] != ';') return {};
    const std::u32string_view name = rest.substr(0, end + 1);
    if (first > 0) {
      const Resolved numeric = numeric_reference(name);
      // ftfy keeps a semicolon's number.
      return numeric.length == name.size() && numeric.characters != U";" ? numeric : Resolved{};
    }
    for (const auto* table : {&names().html, &names().capitals})
      if (const std::u32string* whole = find(*table, name)) return {*whole, name.size()};
    return {};
  });
}

}  // namespace tessera::tokens
