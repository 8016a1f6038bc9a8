// Unicode for tokenisers: code points of UTF-8 text, categories, lower case, normal forms.
//
// The tables come from `unicode.txt.gz` (tools/unicode_table), which is unpacked on first use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokens {

// General categories, in the order of the bits of a category mask.
enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn  // Cn: unassigned
};
constexpr uint32_t bit(Category category) { return uint32_t{1} << static_cast<int>(category); }
// Returns the bits of "L", "Lu", "N", …; 0 for an unknown name.
uint32_t category_mask(std::string_view name);

Category category(char32_t c);
inline bool in_categories(char32_t c, uint32_t mask) { return (bit(category(c)) & mask) != 0; }
bool is_space(char32_t c);        // Unicode's White_Space
bool is_punctuation(char32_t c);  // category P, and the ASCII symbols that BERT counts

// Returns the lower-case form, which may be several characters.
std::u32string lower(char32_t c);
// Lower-cases a text; a sigma at the end of a word becomes "ς".
std::u32string lower(std::u32string_view text);
// Returns a single character for case-insensitive comparison: lower case, or `c` itself if its lower case is
// longer. "ſ" becomes "s".
char32_t folded(char32_t c);

// Appends the canonical (NFD) or compatible (NFKD) decomposition of one character, Hangul syllables included.
void decompose(char32_t c, bool compatible, std::u32string& out);
int combining_class(char32_t c);
// Returns the composition of two characters, or 0.
char32_t composed(char32_t first, char32_t second);

// Converts UTF-8 to code points. Throws Error with the byte's place if it is not UTF-8.
std::u32string to_code_points(std::string_view utf8, const std::string& where);
// Converts UTF-8 to code points; each maximal invalid part becomes U+FFFD.
std::u32string to_code_points_lossy(std::string_view bytes);
void append_utf8(char32_t c, std::string& out);
std::string to_utf8(std::u32string_view chars);

}  // namespace tessera::tokens
