#include <gtest/gtest.h>

#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera {
namespace {

TEST(Html, ReferencesAsInPython) {
  const auto resolved = [](const char32_t* text) {
    return tokens::to_utf8(tokens::resolve_references(text));
  };
  EXPECT_EQ(resolved(U"&ldquo;&sum;&NotEqualTilde;&amp;rsquo;"), "\u201C\u2211\u2242\u0338&rsquo;");
  EXPECT_EQ(resolved(U"&notit; &notin; &amp;lt &ampx"), "\u00ACit; \u2209 &lt &x");
  EXPECT_EQ(resolved(U"&#13;&#0;&#1;x&#xD800;&#x10FFFF;&#129;&#X41"), "\r\uFFFDx\uFFFD\u0081A");
  EXPECT_EQ(resolved(U"&CounterClockwiseContourIntegral;&bogus;&"), "\u2233&bogus;&");
  EXPECT_EQ(resolved(U"&#;&#x;&#xg;&amp"), "&#;&#x;&#xg;&");
  const auto closed = [](const char32_t* text) {
    return tokens::to_utf8(tokens::resolve_closed_references(text));
  };
  EXPECT_EQ(closed(U"P&EACUTE;REZ &Jscr;ohn BUNDESSTRA&SZLIG;E"), "P\u00C9REZ \U0001D4A5ohn BUNDESSTRASSE");
  EXPECT_EQ(closed(U"&ntilde; &NTILDE; &nTILDE; this&not that &#59; &#65;"),
            "\u00F1 \u00D1 &nTILDE; this&not that &#59; A");
}

TEST(ClipText, Repairs) {
  const auto clean = [](const char32_t* text) { return tokens::to_utf8(tokens::clean_caption(text)); };
  EXPECT_EQ(clean(U"  A\u00A0 \u201CCat\u201D &amp;amp; \uFF21\uFB01\u0007 "), "a \"cat\" & afi");
  EXPECT_EQ(clean(U"sch\u00C3\u00B6n caf\u00C9\u201D"), "schön café\"");
  EXPECT_EQ(clean(U"\u03A3\u0391\u03A3"), "σας");
  EXPECT_EQ(clean(U"&#x41;&bogus;&eacute"), "a&bogus;é");
  EXPECT_EQ(clean(U"P&EACUTE;REZ &AMP; &amp;amp;amp;lt;"), "pérez & <");
  EXPECT_EQ(clean(U"\x1b[31mred\x1b[0m"), "red");
  EXPECT_EQ(clean(U"broken\u0085line \u009f"), "broken…line ÿ");
  EXPECT_EQ(clean(U"\u00F0\u0178\u02DC\u20AC \u00D0\u00BF\u00D1\u20AC"), "😀 пр");
  EXPECT_EQ(clean(U"\u00C3\u00A9\u00C3\u00A8\u00C3 "), "éèà");
  EXPECT_EQ(clean(U"caf\u00E9\u201D\u2026 \u00C9COLE"), "café\"… école");  // none of these is misread
}

}  // namespace
}  // namespace tessera
