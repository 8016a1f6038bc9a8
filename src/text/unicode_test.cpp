#include "text/unicode.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "text/text_testing.h"

namespace tessera::tokens {
namespace {

bool is_scalar(char32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= 0x10FFFF); }

// Returns letters, marks of several classes, composed and compatible characters, parts of Hangul, and any other
// character of the table.
std::u32string random_text(RandomStream& random) {
  constexpr std::u32string_view some =
      U"aeqΣσςİıſKÅΩﬁ①é\u0300\u0301\u0307\u0315\u0323\u0327\u0338\u0344\u0345\u0F71\u0F73\u0F75\u1100\u1161"
      U"\u11A8\uAC00"
      U"\uAC01\u1E9B\u212B\u2ADC\u09C7\u09BE\u0958 ";
  std::u32string text;
  for (char32_t c : random_chars(random, some, 12)) {
    if (random.below(4) == 0) c = static_cast<char32_t>(random.below(0x30000));
    if (is_scalar(c)) text += c;
  }
  return text;
}

std::u32string form(std::u32string_view text, const char* type) { return normalised(text, type).chars; }

// Identities of UAX #15 for any text.
void expect_forms(const std::u32string& text) {
  const std::u32string nfc = form(text, "NFC"), nfd = form(text, "NFD"), nfkc = form(text, "NFKC"),
                       nfkd = form(text, "NFKD");
  const std::string what = to_utf8(text);
  EXPECT_EQ(form(nfc, "NFC"), nfc) << what;
  EXPECT_EQ(form(nfd, "NFD"), nfd) << what;
  EXPECT_EQ(form(nfkc, "NFKC"), nfkc) << what;
  EXPECT_EQ(form(nfkd, "NFKD"), nfkd) << what;
  EXPECT_EQ(form(nfd, "NFC"), nfc) << what;
  EXPECT_EQ(form(nfc, "NFD"), nfd) << what;
  EXPECT_EQ(form(nfd, "NFKD"), nfkd) << what;
  EXPECT_EQ(form(nfc, "NFKC"), nfkc) << what;
  EXPECT_EQ(form(nfkd, "NFC"), nfkc) << what;
  for (size_t i = 1; i < nfd.size(); ++i) {  // marks are in the order of their classes
    const int mark = combining_class(nfd[i]);
    EXPECT_TRUE(mark == 0 || combining_class(nfd[i - 1]) <= mark) << what;
  }
}

TEST(Unicode, NormalFormsAndCategories) {
  std::u32string out;
  decompose(U'é', false, out);
  EXPECT_EQ(out, U"e\u0301");
  EXPECT_EQ(composed(U'e', 0x301), U'é');
  out.clear();
  decompose(0xD55C, false, out);  // a Hangul syllable of three parts
  EXPECT_EQ(out, U"\u1112\u1161\u11AB");
  EXPECT_EQ(composed(composed(out[0], out[1]), out[2]), char32_t{0xD55C});
  EXPECT_EQ(category(U'A'), Category::Lu);
  EXPECT_EQ(category(0x1F600), Category::So);
  EXPECT_EQ(category(0x10FFFF), Category::Cn);
  EXPECT_EQ(lower(0x130), U"i\u0307");
  EXPECT_EQ(to_code_points_lossy("a\xE2\x82z\xFF"), U"a\uFFFDz\uFFFD");
  EXPECT_THROW(to_code_points("\xC0\x80", "f"), Error);
}

TEST(Unicode, FormsOfTexts) {
  for (uint64_t sample = 0; sample < 3000; ++sample) {
    RandomStream random(11, "forms", sample);
    expect_forms(random_text(random));
  }
}

// Every character of the planes that have decompositions.
TEST(Unicode, FormsOfCharacters) {
  for (char32_t c = 0; c < 0x30000; ++c) {
    if (!is_scalar(c)) continue;
    std::u32string parts, compatible;
    decompose(c, false, parts);
    decompose(c, true, compatible);
    if (parts.size() == 1 && parts[0] == c && compatible == parts) continue;
    expect_forms(std::u32string(1, c));
    if (parts.size() != 2) continue;
    const char32_t both = composed(parts[0], parts[1]);
    if (both == 0) continue;  // excluded from composition
    std::u32string again;
    decompose(both, false, again);
    EXPECT_EQ(again, parts) << static_cast<uint32_t>(c);
  }
}

// Each place is a range of the text, and places never go back.
TEST(Unicode, PlacesOfForms) {
  for (uint64_t sample = 0; sample < 500; ++sample) {
    RandomStream random(12, "places", sample);
    const std::u32string text = random_text(random);
    for (const char* type : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel"}) {
      const AlignedText out = normalised(text, type);
      ASSERT_EQ(out.spans.size(), out.chars.size());
      int64_t before = 0;
      for (const TokenSpan& span : out.spans) {
        EXPECT_LE(before, span.start) << type;
        EXPECT_LE(span.start, span.end) << type;
        before = span.start;
      }
      EXPECT_TRUE(out.spans.empty() || out.spans.back().end <= std::ssize(text)) << type;
    }
  }
}

TEST(Unicode, LowerCaseIsStable) {
  for (char32_t c = 0; c < 0x30000; ++c) {
    if (!is_scalar(c)) continue;
    const std::u32string small = lower(c);
    for (const char32_t part : small)
      EXPECT_EQ(lower(part), std::u32string(1, part)) << static_cast<uint32_t>(c);
    EXPECT_EQ(folded(folded(c)), folded(c)) << static_cast<uint32_t>(c);
    if (small.size() == 1) {
      EXPECT_EQ(folded(small[0]), folded(c)) << static_cast<uint32_t>(c);
    }
  }
  for (uint64_t sample = 0; sample < 500; ++sample) {
    RandomStream random(13, "lower", sample);
    const std::u32string text = random_text(random), small = lower(text);
    EXPECT_EQ(lower(small), small) << to_utf8(text);
  }
}

TEST(Unicode, Utf8ComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (!is_scalar(c)) continue;
    std::string bytes;
    append_utf8(c, bytes);
    const std::u32string back = to_code_points_lossy(bytes);
    ASSERT_TRUE(back.size() == 1 && back[0] == c) << static_cast<uint32_t>(c);
  }
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    RandomStream random(14, "bytes", sample);
    std::string bytes;
    for (int64_t i = random.integer(0, 12); i > 0; --i)
      bytes +=
          static_cast<char>(random.below(2) ? random.below(256) : "a\xC3\xA9\xE6\xBC\xA2"[random.below(6)]);
    const std::u32string chars = to_code_points_lossy(bytes);
    if (is_utf8(bytes)) {
      EXPECT_EQ(to_code_points(bytes, "f"), chars);
      EXPECT_EQ(to_utf8(chars), bytes);
    } else {
      EXPECT_THROW(to_code_points(bytes, "f"), Error);
      EXPECT_NE(chars.find(U'\uFFFD'), std::u32string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera::tokens
