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
