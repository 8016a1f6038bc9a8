#include "report/markup.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/report_testing.h"

namespace tessera::report {
namespace {

TEST(Escape, LeavesNothingThatMarkupWouldRead) {
  EXPECT_EQ(escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(escape("Zürich 東京 🐈"), "Zürich 東京 🐈");
  EXPECT_EQ(escape("two\nlines\tand a tab"), "two\nlines\tand a tab");
}

TEST(Escape, ReplacesControlCharactersAndBrokenUtf8) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(escape(std::string_view("a\0b\x1b[31m", 8)), "a" + r + "b" + r + "[31m");
  EXPECT_EQ(escape("a\xE2\x80\xAE"
                   "b\xE2\x81\xA6"
                   "c"),
            "a" + r + "b" + r + "c");                    // change the writing direction
  EXPECT_EQ(escape("\xC3"), r);                          // truncated
  EXPECT_EQ(escape("\xC0\xAF"), r + r);                  // overlong '/'
  EXPECT_EQ(escape("\xE0\x80\xAF"), r + r + r);          // overlong '/' again
  EXPECT_EQ(escape("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(escape("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(escape("\xEF\xBF\xBE"), r + r + r);          // U+FFFE is not an XML character
  EXPECT_EQ(escape("\xFFok"), r + "ok");
}

TEST(DataUri, ChoosesTheFormatByTheSize) {
  EXPECT_TRUE(data_uri(Image(32, 32)).starts_with("data:image/png;base64,iVBORw0KGgo"));
  EXPECT_TRUE(data_uri(Image(160, 160)).starts_with("data:image/jpeg;base64,/9j/"));
  EXPECT_TRUE(data_uri(Image(160, 160, 1)).starts_with("data:image/png;"));
}

TEST(Compact, WritesNumbersForPeople) {
  EXPECT_EQ(compact(0.1), "0.1");
  EXPECT_EQ(compact(12.3456), "12.35");
  EXPECT_EQ(compact(1.0), "1");
  EXPECT_EQ(compact(0.0000123), "1.23e-05");
  EXPECT_EQ(compact(-0.0), "0");
  EXPECT_EQ(compact(-3.5), "-3.5");
  EXPECT_EQ(compact(NAN), "nan");
}

TEST(FitText, CutsBetweenCharactersOnly) {
  const std::string words = "großbritannisches Weißbrötchen";
  EXPECT_EQ(fit_text(words, 11, 1000), words);
  for (int width = 5; width < 200; width += 3) {
    const std::string cut = fit_text(words, 11, width);
    EXPECT_EQ(escape(cut), cut) << "broken UTF-8 at width " << width;
    if (cut == words) continue;
    ASSERT_TRUE(cut.ends_with("…")) << cut;
    EXPECT_TRUE(words.starts_with(cut.substr(0, cut.size() - 3)));
    EXPECT_LE(text_width(cut.substr(0, cut.size() - 3), 11), width);
  }
}

TEST(XmlReader, CatchesBrokenMarkup) {
  for (const char* broken : {"<a>", "<a></b>", "<a b=c></a>", "<a>x & y</a>", "<a b=\"<\"/>", "</a>",
                             "<a>1 > 2</a>", "<a b=\"c></a>", "<a><b></a></b>"})
    EXPECT_FALSE(testing::XmlReader(broken).problem.empty()) << broken;
  EXPECT_EQ(testing::XmlReader("<a b=\"c\">x &amp; y<b/></a>").problem, "");
}

}  // namespace
}  // namespace tessera::report
