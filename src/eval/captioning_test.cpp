#include "eval/captioning.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::eval {
namespace {

TEST(CaptionTokens, WordsAreCutAsTheTreebankCutsThem) {
  EXPECT_EQ(caption_tokens("A man's dog, isn't here!"), "a man 's dog is n't here");
  EXPECT_EQ(caption_tokens("He cannot pay $5.00 (at 10:30 a.m.)"),
            "he can not pay $ 5.00 -lrb- at 10:30 a.m. -rrb-");
  EXPECT_EQ(caption_tokens("two  T-shirts -- 50% off..."), "two t-shirts 50 % off");
  EXPECT_EQ(caption_tokens(""), "");
}

TEST(CaptionTokens, NumbersAndAbbreviations) {
  EXPECT_EQ(caption_tokens("No. 5 left at 5:00pm, Jan. 5."), "no. 5 left at 5:00 pm jan. 5");
  EXPECT_EQ(caption_tokens("No. Approx. ten"), "no approx ten");
  EXPECT_EQ(caption_tokens("2 1/2 cups, \u00bd for \u00a35 or \u20ac3"),
            "2\u00a01/2 cups 1/2 for # 5 or $ 3");
  EXPECT_EQ(caption_tokens("etc., a.b.c and p.m"), "etc. a.b.c and p.m");
}

TEST(CaptionTokens, Apostrophes) {
  EXPECT_EQ(caption_tokens("cars of '57 in the '60s"), "cars of '57 in the '60s");
  EXPECT_EQ(caption_tokens("rock'n'roll y'all Int'l"), "rock 'n' roll y' all int l");
  EXPECT_EQ(caption_tokens("the 'new' one isn\u2019t"), "the new one is n't");
}

TEST(CaptionTokens, AddressesAndSigns) {
  EXPECT_EQ(caption_tokens("http://a.b/c?d=e me@x.org C++ C#"), "http://a.b/c?d=e me@x.org c++ c#");
  EXPECT_EQ(caption_tokens("=) :) ** ------- \u00ae &amp;"), "=-rrb- :-rrb- ** ------- \u00ae &");
}

TEST(CaptionTokens, LettersAreThoseOfUnicode) {
  EXPECT_EQ(caption_tokens("\u00c9t\u00c9 \u041f\u0440"), "\u00e9t\u00e9 \u043f\u0440");
  EXPECT_EQ(caption_tokens("a\U0001F600b so\u00adft \ufeffx\u200by\u3000z"), "a b soft x y z");
}

// The cost of a caption is proportional to its length.
TEST(CaptionTokens, LongNonsenseEnds) {
  for (const char* part : {"<a ", "a,", "a'", "&amp;", "1-", "www.", "\"", "a@"}) {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += part;
    EXPECT_NO_THROW(caption_tokens(text)) << part;
  }
}

TEST(CaptionScores, TheReferenceItselfIsBest) {
  const std::vector<CaptionedImage> images = {{"a red disc on a table", {"a red disc on a table"}},
                                              {"two blue rings in the rain", {"two blue rings in the rain"}},
                                              {"", {"a green star under a tree"}}};
  const CaptionScores scores = score_captions(images);
  EXPECT_NEAR(scores.cider_each[0], 10, 1e-9);
  EXPECT_NEAR(scores.rouge_l_each[1], 1, 1e-12);
  EXPECT_NEAR(scores.bleu_each[0][3], 1, 1e-8);
  EXPECT_LT(scores.bleu_each[2][0], 1e-3);
  EXPECT_EQ(scores.cider_each[2], 0);
  EXPECT_EQ(scores.rouge_l_each[2], 0);
}

TEST(CaptionScores, OrderOfWordsMattersToLongerNGramsAlone) {
  const CaptionScores scores =
      score_captions({{"disc red a", {"a red disc"}}, {"one star shines", {"one star shines"}}});
  EXPECT_NEAR(scores.bleu_each[0][0], 1, 1e-8);
  EXPECT_LT(scores.bleu_each[0][1], 1e-3);
}

TEST(CaptionScores, WhatCannotBeScoredIsNamed) {
  EXPECT_THROW(score_captions({}), Error);
  EXPECT_THROW(score_captions({{"a disc", {}}}), Error);
}

}  // namespace
}  // namespace tessera::eval
