#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/gzip.h"

extern const unsigned char tessera_unicode[];
extern const size_t tessera_unicode_size;

namespace tessera::tokens {
namespace {

constexpr char32_t kLimit = 0x110000, kReplacement = 0xFFFD;
constexpr char32_t kHangul = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr int kCountV = 21, kCountT = 28, kHangulCount = 11172;

constexpr std::array<std::string_view, 30> kNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

struct Tables {
  std::vector<uint8_t> categories = std::vector<uint8_t>(kLimit, static_cast<uint8_t>(Category::Cn));
  std::unordered_map<char32_t, std::u32string> lower, canonical, compatible;
  std::unordered_map<char32_t, int> combining;
  std::unordered_map<uint64_t, char32_t> pairs;
};

char32_t number(std::string_view digits) {
  uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

// Adds a line of the table: a letter for its kind, then code points.
void add_line(const std::vector<std::string>& words, Tables& tables) {
  const char32_t key = number(words[1]);
  const auto rest = [&] {
    std::u32string out;
    for (size_t i = 2; i < words.size(); ++i) out += number(words[i]);
    return out;
  };
  switch (words[0][0]) {
    case 'C': {
      const auto at = std::find(kNames.begin(), kNames.end(), words[3]) - kNames.begin();
      std::fill(tables.categories.begin() + key, tables.categories.begin() + number(words[2]) + 1,
                static_cast<uint8_t>(at));
      break;
    }
    case 'L':
      tables.lower[key] = rest();
      break;
    case 'D':
      tables.canonical[key] = rest();
      break;
    case 'K':
      tables.compatible[key] = rest();
      break;
    case 'M':
      tables.combining[key] = static_cast<int>(number(words[2]));
      break;
    default:
      tables.pairs[uint64_t{key} << 32 | number(words[2])] = number(words[3]);
  }
}

Tables read_tables() {
  Tables tables;
  const std::span packed(tessera_unicode, tessera_unicode_size);
  const std::string all(as_text(inflate_gzip(std::as_bytes(packed), "Unicode's table")));
  for (const std::string& line : split(all, '\n'))
    if (!line.empty()) add_line(split(line, ' '), tables);
  return tables;
}

const Tables& tables() {
  static const Tables all = read_tables();
  return all;
}

// Decodes one character from the front of `bytes` (not empty). Returns its length, or 0 with `bad` bytes to
// skip.
size_t decode_one(std::string_view bytes, char32_t& out, size_t& bad) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = at(0);
  bad = 1;
  if (first < 0x80) return out = first, 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  out = first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    // The second byte has a narrower range for some characters: no overlong forms, no surrogates.
    const unsigned low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (i >= bytes.size() || at(i) < low || at(i) > high) return bad = i, 0;
    out = out << 6 | (at(i) & 0x3F);
  }
  return length;
}

}  // namespace

uint32_t category_mask(std::string_view name) {
  uint32_t mask = 0;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name || (name.size() == 1 && kNames[i][0] == name[0])) mask |= uint32_t{1} << i;
  return mask;
}

Category category(char32_t c) {
  static const std::vector<uint8_t>& all = tables().categories;
  return c < kLimit ? static_cast<Category>(all[c]) : Category::Cn;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || in_categories(c, bit(Category::Zs) | bit(Category::Zl) | bit(Category::Zp));
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return in_categories(c, category_mask("P"));
}

std::u32string lower(char32_t c) {
  if (c < 0x80) return std::u32string(1, c >= 'A' && c <= 'Z' ? c + 32 : c);
  const auto found = tables().lower.find(c);
  return found == tables().lower.end() ? std::u32string(1, c) : found->second;
}

std::u32string lower(std::u32string_view text) {
  constexpr char32_t kSigma = 0x3A3, kLastSigma = 0x3C2;
  const auto is_letter = [](char32_t c) { return in_categories(c, category_mask("L")); };
  const auto is_passed_over = [](char32_t c) {
    return c == '\'' || c == 0x2019 ||
           in_categories(c, bit(Category::Mn) | bit(Category::Me) | bit(Category::Cf));
  };
  std::u32string out;
  out.reserve(text.size());
  bool in_word = false;  // true after a letter, ignoring marks and apostrophes
  for (size_t i = 0; i < text.size(); ++i) {
    size_t next = i + 1;
    if (text[i] == kSigma && in_word) {
      while (next < text.size() && is_passed_over(text[next])) ++next;
      out += next < text.size() && is_letter(text[next]) ? lower(kSigma) : std::u32string(1, kLastSigma);
    } else {
      out += lower(text[i]);
    }
    if (!is_passed_over(text[i])) in_word = is_letter(text[i]);
  }
  return out;
}

char32_t folded(char32_t c) {
  if (c == 0x17F) return 's';
  const std::u32string small = lower(c);
  return small.size() == 1 ? small[0] : c;
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  if (c < 0x80) {
    out += c;
    return;
  }
  if (c >= kHangul && c < kHangul + kHangulCount) {
    const char32_t index = c - kHangul;
    out += kHangulL + index / (kCountV * kCountT);
    out += kHangulV + index % (kCountV * kCountT) / kCountT;
    if (index % kCountT) out += kHangulT + index % kCountT;
    return;
  }
  const Tables& all = tables();
  if (compatible)
    if (const auto found = all.compatible.find(c); found != all.compatible.end()) {
      out += found->second;
      return;
    }
  const auto found = all.canonical.find(c);
  if (found == all.canonical.end())
    out += c;
  else
    out += found->second;
}

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const auto found = tables().combining.find(c);
  return found == tables().combining.end() ? 0 : found->second;
}

char32_t composed(char32_t first, char32_t second) {
  if (first >= kHangulL && first < kHangulL + 19 && second >= kHangulV && second < kHangulV + kCountV)
    return kHangul + ((first - kHangulL) * kCountV + (second - kHangulV)) * kCountT;
  if (first >= kHangul && first < kHangul + kHangulCount && (first - kHangul) % kCountT == 0 &&
      second > kHangulT && second < kHangulT + kCountT)
    return first + (second - kHangulT);
  const auto found = tables().pairs.find(uint64_t{first} << 32 | second);
  return found == tables().pairs.end() ? 0 : found->second;
}

std::u32string to_code_points(std::string_view utf8, const std::string& where) {
  std::u32string out;
  out.reserve(utf8.size());
  for (size_t at = 0; at < utf8.size();) {
    char32_t c = 0;
    size_t bad = 0;
    const size_t length = decode_one(utf8.substr(at, 4), c, bad);
    if (length == 0) fail(where, " is not UTF-8: it goes wrong at byte ", at + 1);
    out += c;
    at += length;
  }
  return out;
}

std::u32string to_code_points_lossy(std::string_view bytes) {
  std::u32string out;
  for (size_t at = 0; at < bytes.size();) {
    char32_t c = 0;
    size_t bad = 0;
    const size_t length = decode_one(bytes.substr(at, 4), c, bad);
    out += length ? c : kReplacement;
    at += length ? length : bad;
  }
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string to_utf8(std::u32string_view chars) {
  std::string out;
  out.reserve(chars.size());
  for (const char32_t c : chars) append_utf8(c, out);
  return out;
}

}  // namespace tessera::tokens
