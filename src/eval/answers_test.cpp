#include "eval/captioning.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::eval {
namespace {

TEST(Answers, AreComparedAsTheBenchmarkComparesThem) {
  EXPECT_EQ(processed_answer("\tThe Dogs, two!\n"), "dogs 2");
  EXPECT_EQ(processed_answer("dont know."), "don't know");
  EXPECT_EQ(processed_answer("1,000-2"), "10002");
  EXPECT_EQ(processed_answer("3.5"), "3.5");
}

TEST(Answers, LettersAndBlanksAreThoseOfUnicode) {
  EXPECT_EQ(processed_answer("É\u00a0È"), "é è");
  EXPECT_EQ(processed_answer("\u3000x\u2028Y\x1f"), "x y");
  EXPECT_EQ(processed_answer("ΣΑΣ"), "σας");
}

TEST(Answers, EachAnnotatorIsComparedWithTheOthers) {
  const std::vector<std::string> annotators = {"yes", "yes", "yes", "Yes.", "no"};
  EXPECT_NEAR(vqa_accuracy("yes", annotators), 1, 1e-12);
  EXPECT_NEAR(vqa_accuracy("no", annotators), 4.0 / 15, 1e-12);
  EXPECT_EQ(vqa_accuracy("no", std::vector<std::string>{}), 0);
}

}  // namespace
}  // namespace tessera::eval
