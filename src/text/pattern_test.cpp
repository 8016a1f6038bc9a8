#include "text/pattern.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::tokens {
namespace {

std::vector<std::string> all_matches(const char* expression, std::string_view text) {
  const Pattern pattern(expression, "a test");
  const std::u32string chars = to_code_points(text, "the text");
  std::vector<std::string> out;
  size_t at = 0;
  uint64_t steps = Pattern::steps_for(chars.size());
  while (const auto match = pattern.find(chars, at, steps)) {
    at = match->end;
    out.push_back(to_utf8(std::u32string_view(chars).substr(match->start, match->end - match->start)));
  }
  return out;
}

using Strings = std::vector<std::string>;

TEST(Pattern, RepeatsAndChoices) {
  EXPECT_EQ(all_matches("a+b?", "aab ab b"), (Strings{"aab", "ab"}));
  EXPECT_EQ(all_matches("a+?b", "aab"), (Strings{"aab"}));
  EXPECT_EQ(all_matches("(?:ab){2,3}", "abababab ab"), (Strings{"ababab"}));
  EXPECT_EQ(all_matches("x{2,}", "x xx xxx"), (Strings{"xx", "xxx"}));
  EXPECT_EQ(all_matches("a*+a", "aaa"), Strings{});  // possessive: no backtracking
  EXPECT_EQ(all_matches("(?>a|ab)c", "abc ac"), (Strings{"ac"}));
  EXPECT_EQ(all_matches("cat|category", "category"), (Strings{"cat"}));  // the first match, not the longest
  EXPECT_EQ(all_matches("^a|b$", "aab"), (Strings{"a", "b"}));
}

TEST(Pattern, ClassesAndProperties) {
  EXPECT_EQ(all_matches(R"([^\s\p{L}\p{N}]+)", "a!? 1…b"), (Strings{"!?", "…"}));
  EXPECT_EQ(all_matches(R"(\p{Lu}\p{Ll}+)", "Ünder One two"), (Strings{"Ünder", "One"}));
  EXPECT_EQ(all_matches(R"([a-c\-]+)", "ab-d-c"), (Strings{"ab-", "-c"}));
  EXPECT_EQ(all_matches(R"(\P{L}+)", "a12b"), (Strings{"12"}));
  EXPECT_EQ(all_matches(R"([\x41-\u0043]+)", "ABCD"), (Strings{"ABC"}));
  EXPECT_EQ(all_matches(R"((?i:'s|'re))", "'S 'Re 'x"), (Strings{"'S", "'Re"}));
  EXPECT_EQ(all_matches(R"((?i)k)", "k K \u212A"), (Strings{"k", "K", "\u212A"}));
}

TEST(Pattern, ClassesWithinClasses) {
  // BLOOM's published expression.
  EXPECT_EQ(all_matches(R"( ?[^(\s|[.,!?…。，、।۔،])]+)", "ein Satz, (der)…"),
            (Strings{"ein", " Satz", "der"}));
  EXPECT_EQ(all_matches("[a[^b-z]]+", "abBA1"), (Strings{"a", "BA1"}));
  EXPECT_EQ(all_matches(R"([\p{L}&&[^a-z]]+)", "aBÉc漢1"), (Strings{"BÉ", "漢"}));
  EXPECT_EQ(all_matches(R"([^\p{L}&&[^a-z]]+)", "aBÉc1"), (Strings{"a", "c1"}));
  EXPECT_EQ(all_matches(R"([\p{L}\p{N}&&[^\p{Han}]]+|\p{Han}+)", "日本go漢1"),
            (Strings{"日本", "go", "漢", "1"}));
  EXPECT_EQ(all_matches(R"([[:alpha:]]+|[[:digit:]_]+)", "ab1_!é"), (Strings{"ab", "1_", "é"}));
  EXPECT_EQ(all_matches(R"([[:^alpha:]]+)", "ab1_c"), (Strings{"1_"}));
  EXPECT_EQ(all_matches(R"(\h+)", "xyFace9g"), (Strings{"Face9"}));
  EXPECT_EQ(all_matches(R"((?i)[[a-c]]+)", "aBCd"), (Strings{"aBC"}));
}

// Oniguruma's semantics, which differ from Perl's.
TEST(Pattern, RepeatsOfRepeats) {
  EXPECT_EQ(all_matches(R"(\p{N}{1,3}+)", "12345 6"), (Strings{"12345", "6"}));  // of cl100k_base
  EXPECT_EQ(all_matches("(?:ab){2}+", "abababab"), (Strings{"abababab"}));
  EXPECT_EQ(all_matches("x{2,3}+", "xxxxx"), (Strings{"xxxxx"}));
  EXPECT_EQ(all_matches("a{1,2}+a", "aaa"), (Strings{"aaa"}));  // it backtracks
  EXPECT_EQ(all_matches("a{2,3}?", "aaaa"), (Strings{"aa", "aa"}));
  EXPECT_EQ(all_matches("xa{2}?", "xaa xa"), (Strings{"xaa", "x"}));  // an optional pair
}

// A repeat of a part that can be empty ends after its first empty time.
TEST(Pattern, RepeatsOfNothing) {
  EXPECT_EQ(all_matches("(?:a*)*b", "aab c"), (Strings{"aab"}));
  EXPECT_EQ(all_matches("(?:a?|b)+c", "abac"), (Strings{"abac"}));
  EXPECT_EQ(all_matches("(?:)*x|^*y", "xy"), (Strings{"x", "y"}));
}

TEST(Pattern, LinesAndEnds) {
  EXPECT_EQ(all_matches("^a|a$", "a a\na\n"), (Strings{"a", "a", "a"}));
  EXPECT_EQ(all_matches(R"(\Aa|a\z)", "a\na\na"), (Strings{"a", "a"}));
}

TEST(Pattern, LookAhead) {
  EXPECT_EQ(all_matches(R"(\s+(?!\S)|\s+)", "a   b "), (Strings{"  ", " ", " "}));
  EXPECT_EQ(all_matches("a(?=b)", "ab ac"), (Strings{"a"}));
}

TEST(Pattern, WhatIsNotUnderstoodIsNamed) {
  for (const char* expression : {"(a", "a)", "[a", "*a", "a{3,1}", "(?<=a)b", "[[a]", "[[:foo:]]", "\\q",
                                 "\\p{Greek}", "[b-a]", "a{2000}"}) {
    try {
      Pattern(expression, "f.json");
      ADD_FAILURE() << expression << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("f.json: the splitting expression"), std::string::npos)
          << error.what();
    }
  }
}

// All matches of a text share its steps, so that the time grows with the text alone.
TEST(Pattern, SlowExpressionsEnd) {
  for (const char* expression : {"(?:a|a)*b", "a*b", "a+?b", "(?=a*b)a", "(?>a*)b", "(?:a?){1000}a{1000}b"})
    for (const size_t size : {20000, 100000}) {
      try {
        all_matches(expression, std::string(size, 'a'));
        ADD_FAILURE() << expression << " ended";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("takes too long on this text"), std::string::npos)
            << error.what();
      }
    }
  EXPECT_EQ(all_matches("a*b", std::string(500, 'a')), Strings{});
  EXPECT_EQ(all_matches("a+|b", std::string(2000000, 'a') + "b").size(), 2u);
}

}  // namespace
}  // namespace tessera::tokens
