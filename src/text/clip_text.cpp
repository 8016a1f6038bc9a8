#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

// Windows-1252 at 0x80 … 0x9F; its five unassigned places map to themselves.
constexpr std::array<char32_t, 32> kWindows1252 = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

int windows_byte(char32_t c) {
  const auto at = std::find(kWindows1252.begin(), kWindows1252.end(), c);
  if (at != kWindows1252.end()) return 0x80 + static_cast<int>(at - kWindows1252.begin());
  return c >= 0x80 && c < 0x100 ? static_cast<int>(c) : -1;
}

// Reads one character misread as one character per byte at `at`. Returns the number of bytes, 0 if none.
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

// True if no word begins with these two characters, so that they must be misread: "Â", "Ã" and "â" with any
// sign, and the beginnings of "œ", "ﬁ" and Vietnamese letters.
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

// Turns "schÃ¶n" into "schön": characters that are the bytes of one. Repairs a single one only if it is
// certain, and others next to another such character ("Ð¿Ñ€", not "é…”").
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
    // The second byte of "à" is a no-break space, which programs often replace by a plain blank.
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

// True for ligatures of Latin letters and full- and half-width forms: their compatible decomposition is used.
bool wants_compatible(char32_t c) {
  return (c >= 0xFB00 && c <= 0xFB06) || (c >= 0xFF01 && c <= 0xFFEE) || c == 0x3000 || c == 0x132 ||
         c == 0x133 || c == 0x149 || (c >= 0x1C4 && c <= 0x1CC) || (c >= 0x1F1 && c <= 0x1F3);
}

// Names that HTML accepts even without a semicolon: Latin-1 from U+00A0 on, in order.
constexpr std::array<const char32_t*, 96> kLatin1 = {
    U"nbsp",   U"iexcl",  U"cent",   U"pound",  U"curren", U"yen",    U"brvbar", U"sect",   U"uml",
    U"copy",   U"ordf",   U"laquo",  U"not",    U"shy",    U"reg",    U"macr",   U"deg",    U"plusmn",
    U"sup2",   U"sup3",   U"acute",  U"micro",  U"para",   U"middot", U"cedil",  U"sup1",   U"ordm",
    U"raquo",  U"frac14", U"frac12", U"frac34", U"iquest", U"Agrave", U"Aacute", U"Acirc",  U"Atilde",
    U"Auml",   U"Aring",  U"AElig",  U"Ccedil", U"Egrave", U"Eacute", U"Ecirc",  U"Euml",   U"Igrave",
    U"Iacute", U"Icirc",  U"Iuml",   U"ETH",    U"Ntilde", U"Ograve", U"Oacute", U"Ocirc",  U"Otilde",
    U"Ouml",   U"times",  U"Oslash", U"Ugrave", U"Uacute", U"Ucirc",  U"Uuml",   U"Yacute", U"THORN",
    U"szlig",  U"agrave", U"aacute", U"acirc",  U"atilde", U"auml",   U"aring",  U"aelig",  U"ccedil",
    U"egrave", U"eacute", U"ecirc",  U"euml",   U"igrave", U"iacute", U"icirc",  U"iuml",   U"eth",
    U"ntilde", U"ograve", U"oacute", U"ocirc",  U"otilde", U"ouml",   U"divide", U"oslash", U"ugrave",
    U"uacute", U"ucirc",  U"uuml",   U"yacute", U"thorn",  U"yuml"};

struct Reference {
  char32_t character;
  bool needs_semicolon;
};

const std::map<std::u32string, Reference, std::less<>>& references() {
  static const auto table = [] {
    std::map<std::u32string, Reference, std::less<>> all = {
        {U"amp", {'&', false}},     {U"lt", {'<', false}},      {U"gt", {'>', false}},
        {U"quot", {'"', false}},    {U"apos", {'\'', true}},    {U"hellip", {0x2026, true}},
        {U"ndash", {0x2013, true}}, {U"mdash", {0x2014, true}}, {U"lsquo", {0x2018, true}},
        {U"rsquo", {0x2019, true}}, {U"ldquo", {0x201C, true}}, {U"rdquo", {0x201D, true}},
        {U"trade", {0x2122, true}}, {U"euro", {0x20AC, true}},  {U"bull", {0x2022, true}},
        {U"larr", {0x2190, true}},  {U"rarr", {0x2192, true}},  {U"hearts", {0x2665, true}},
        {U"prime", {0x2032, true}}, {U"infin", {0x221E, true}}, {U"minus", {0x2212, true}},
        {U"ensp", {0x2002, true}},  {U"emsp", {0x2003, true}},  {U"thinsp", {0x2009, true}}};
    for (size_t i = 0; i < kLatin1.size(); ++i) all[kLatin1[i]] = {static_cast<char32_t>(0xA0 + i), false};
    for (const char32_t* name : {U"AMP", U"LT", U"GT", U"QUOT", U"COPY", U"REG"})
      all[name] = all.at(lower(std::u32string_view(name)));
    return all;
  }();
  return table;
}

// Parses the reference that `rest` (the text after "&") begins with. Returns its length, 0 for none.
size_t numeric_reference(std::u32string_view rest, char32_t& out) {
  if (rest.size() < 2 || rest[0] != '#') return 0;
  const bool hex = rest[1] == 'x' || rest[1] == 'X';
  size_t at = hex ? 2 : 1;
  const size_t first = at;
  uint64_t value = 0;
  for (; at < rest.size() && value < 0x110000; ++at) {
    const char32_t c = folded(rest[at]);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(hex && c >= 'a' && c <= 'f')) break;
    value = value * (hex ? 16 : 10) + (digit ? c - '0' : c - 'a' + 10);
  }
  if (at == first) return 0;
  if (at < rest.size() && rest[at] == ';') ++at;
  if (value >= 0x80 && value < 0xA0) value = kWindows1252[value - 0x80];
  out = value == 0 || value >= 0x110000 || (value >= 0xD800 && value < 0xE000) ? 0xFFFD
                                                                               : static_cast<char32_t>(value);
  return at;
}

size_t named_reference(std::u32string_view rest, char32_t& out) {
  constexpr size_t kLongest = 6;
  for (size_t length = std::min(kLongest, rest.size()); length > 1; --length) {
    const auto found = references().find(rest.substr(0, length));
    if (found == references().end()) continue;
    const bool closed = length < rest.size() && rest[length] == ';';
    if (found->second.needs_semicolon && !closed) continue;
    out = found->second.character;
    return length + (closed ? 1 : 0);
  }
  return 0;
}

// Names written in all capitals: "EACUTE" is "É".
const std::map<std::u32string, char32_t, std::less<>>& capital_references() {
  static const auto table = [] {
    std::map<std::u32string, char32_t, std::less<>> all;
    for (const auto& [name, reference] : references()) {
      if (name != lower(std::u32string_view(name)) || reference.character == 0xDF) continue;
      std::u32string capitals = name;
      for (char32_t& c : capitals) c = c >= 'a' && c <= 'z' ? c - 32 : c;
      const char32_t c = reference.character;
      const bool has_capital = c >= 0xE0 && c < 0xFF && c != 0xF7;
      if (!references().count(capitals)) all[capitals] = has_capital ? c - 32 : c == 0xFF ? 0x178 : c;
    }
    return all;
  }();
  return table;
}

// Resolves references that end in a semicolon, including names in capitals.
std::u32string resolve_closed_references(std::u32string_view text) {
  constexpr size_t kLongest = 26;
  std::u32string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char32_t c = text[i];
    if (c == '&') {
      const std::u32string_view rest = text.substr(i + 1, kLongest);
      const std::u32string_view name = rest.substr(0, rest.find(U';'));
      size_t taken = 0;
      if (name.size() < rest.size()) {
        taken = std::max(numeric_reference(rest, c), named_reference(rest, c));
        if (const auto found = capital_references().find(name); found != capital_references().end())
          c = found->second, taken = name.size() + 1;
      }
      if (taken == name.size() + 1)
        i += taken;
      else
        c = U'&';
    }
    out += c;
  }
  return out;
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
// "<" is markup: its references are kept.
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

std::u32string resolve_references(std::u32string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char32_t c = text[i];
    if (c == '&') {
      const std::u32string_view rest = text.substr(i + 1);
      const size_t numeric = numeric_reference(rest, c);
      i += numeric ? numeric : named_reference(rest, c);
    }
    out += c;
  }
  return out;
}

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
