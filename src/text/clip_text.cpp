#include <algorithm>
#include <string>

#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

int windows_byte(char32_t c) {
  const auto at = std::find(kWindows1252.begin(), kWindows1252.end(), c);
  if (at != kWindows1252.end()) return 0x80 + static_cast<int>(at - kWindows1252.begin());
  return c >= 0x80 && c < 0x100 ? static_cast<int>(c) : -1;
}

// Reads one character that was misread as one character per byte, at `at`.
size_t misread_character(std::u32string_view text, size_t at, char32_t& out) {
  const int lead = windows_byte(text[at]);
  const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  std::string bytes;
  for (size_t i = at; i < at + length; ++i) {
    const int byte = windows_byte(text[i]);
    if (byte < 0) return 0;
    bytes += static_cast<char>(byte);
  }
  const std::u32string one = to_code_points_lossy(bytes);
  if (one.size() != 1 || one[0] == 0xFFFD) return 0;
  out = one[0];
  return length;
}

// True if no word begins with these two characters, so that they must be a misreading: "Â", "Ã" and "â" with
// any sign, and the beginnings of "œ", "ﬁ" and Vietnamese letters.
bool is_certain(char32_t lead, char32_t second) {
  switch (lead) {
    case 0xC2:
    case 0xC3:
    case 0xE2:
      return true;
    case 0xC5:
      return second == 0x2019 || second == 0x201C;
    case 0xEF:
      return second == 0xAC;
    case 0xE1:
      return second == 0xBA;
    default:
      return false;
  }
}

// Repairs characters that are the bytes of one, as in "schÃ¶n" for "schön". An isolated case is repaired only
// if it is certain, others only next to another such character ("Ð¿Ñ€", not "é…”").
std::u32string repair_encoding(std::u32string_view text) {
  std::u32string out;
  bool behind_repair = false;
  for (size_t i = 0; i < text.size();) {
    char32_t c = 0, next = 0;
    const size_t length = misread_character(text, i, c);
    const bool certain = length == 4 || (length > 0 && is_certain(text[i], text[i + 1]));
    if (length > 0 && (certain || behind_repair ||
                       (i + length < text.size() && misread_character(text, i + length, next) > 0))) {
      out += c;
      i += length;
      behind_repair = true;
      continue;
    }
    // The second byte of "à" is a no-break space, which programs often replace with a plain blank.
    const bool grave = behind_repair && text[i] == 0xC3 && i + 1 < text.size() && text[i + 1] == ' ';
    out += grave ? U'\u00E0' : text[i];
    behind_repair = false;
    ++i;
  }
  return out;
}

// Removes terminal colour codes: "\x1b[31m".
std::u32string without_terminal_escapes(std::u32string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t end = i + 2;
    if (text[i] == 0x1B && end <= text.size() && text[i + 1] == '[') {
      while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == ';')) ++end;
      const char32_t last = end < text.size() ? folded(text[end]) : 0;
      if (last >= 'a' && last <= 'z') {
        i = end;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

bool is_unwanted_control(char32_t c) {
  return c < 9 || c == 0xB || (c >= 0xE && c < 0x20) || c == 0x7F || (c >= 0x206A && c <= 0x206F) ||
         c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

// True for ligatures of Latin letters and full- and half-width forms: their compatibility decomposition is
// used.
bool wants_compatible(char32_t c) {
  return (c >= 0xFB00 && c <= 0xFB06) || (c >= 0xFF01 && c <= 0xFFEE) || c == 0x3000 || c == 0x132 ||
         c == 0x133 || c == 0x149 || (c >= 0x1C4 && c <= 0x1CC) || (c >= 0x1F1 && c <= 0x1F3);
}

std::u32string repaired_once(std::u32string_view text) {
  std::u32string windows = repair_encoding(text), out;
  for (char32_t& c : windows)
    if (c >= 0x80 && c < 0xA0) c = kWindows1252[c - 0x80];
  for (const char32_t c : without_terminal_escapes(windows)) {
    if (is_unwanted_control(c)) continue;
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) {
      out += U'\'';
    } else if (c >= 0x201C && c <= 0x201F) {
      out += U'"';
    } else if (c == 0x149) {
      out += U"'n";
    } else if (wants_compatible(c)) {
      decompose(c, true, out);
    } else {
      out += c;
    }
  }
  AlignedText text_with_places = aligned(out);
  make_normaliser({{"type", "NFC"}}, "a caption")->apply(text_with_places);
  return text_with_places.chars;
}

// Repairs until nothing changes, at most kMostRounds times: each repair may uncover another. A text with a
// "<" counts as markup, and its character references are kept.
std::u32string repaired(std::u32string_view text) {
  constexpr int kMostRounds = 16;
  const bool markup = text.find(U'<') != std::u32string_view::npos;
  std::u32string now(text);
  for (int round = 0; round < kMostRounds; ++round) {
    std::u32string next = repaired_once(markup ? now : resolve_closed_references(now));
    if (next == now) break;
    now = std::move(next);
  }
  return now;
}

}  // namespace

std::u32string clean_caption(std::u32string_view text) {
  const std::u32string whole = resolve_references(resolve_references(repaired(text)));
  std::u32string out;
  for (const char32_t c : whole)
    if (!is_space(c))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += U' ';
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return lower(out);
}

}  // namespace tessera::tokens
