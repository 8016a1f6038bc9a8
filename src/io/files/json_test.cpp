#include "io/files/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <sstream>

#include "io/files/io_testing.h"

namespace tessera {
namespace {

using namespace std::string_literals;

std::string refusal(const std::string& document, const JsonLimits& limits = {}) {
  const std::string message = error_of([&] { parse_json(document, "f", limits); });
  EXPECT_EQ(error_of([&] { parse_json<nlohmann::ordered_json>(document, "f", limits); }), message);
  return message;
}

TEST(Json, KeepsTheOrderOfKeysWhereAsked) {
  const auto tree = parse_json<nlohmann::ordered_json>(R"({"b": [1, 2.5, null], "a": "ü"})", "f");
  EXPECT_EQ(tree.dump(), R"({"b":[1,2.5,null],"a":"ü"})");
  EXPECT_EQ(parse_json(R"({"b": 1, "a": true})", "f").dump(), R"({"a":true,"b":1})");
}

TEST(Json, RefusesWhatIsTooDeepTooLongOrTooMuch) {
  EXPECT_EQ(refusal(R"({"a": [[1]]})", {.max_depth = 3}), "");
  EXPECT_EQ(refusal(R"({"a": [[[1]]]})", {.max_depth = 3}), "f: JSON is nested deeper than 3");
  EXPECT_EQ(refusal(std::string(200000, '[')), "f: JSON is nested deeper than 16");
  EXPECT_EQ(refusal(std::string(101, ' '), {.max_bytes = 100}),
            "f has 101 bytes of JSON, at most 100 are read");
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 1, "b": 2}})", {.max_keys = 2}), "");
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "c": 3})", {.max_keys = 2}), "f: a JSON object has more than 2 keys");
}

TEST(Json, RefusesWhatIsBroken) {
  EXPECT_EQ(refusal(R"({"a": 1, "a": 2})"), "f: JSON key 'a' occurs twice");
  EXPECT_EQ(refusal("{\"a\": 1,}"), "f is not JSON: it goes wrong at byte 9");
  EXPECT_EQ(refusal("\"\xff\""), "f is not JSON: it goes wrong at byte 2");
  EXPECT_EQ(refusal("1e999"), "f is not usable JSON");
  EXPECT_EQ(refusal(""), "f is not JSON: it goes wrong at byte 1");
}

// With the parser's own callback this took 20 seconds: each object then costs a pass over the list so far.
TEST(Json, TheTimeOfALongListIsProportionalToItsLength) {
  std::string list = "[{}";
  for (int i = 0; i < 200'000; ++i) list += ",{}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(list + "]", "f", {.max_bytes = 1 << 20}).size(), 200'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Json, ANulIsAnErrorAndNotTheEnd) {
  EXPECT_EQ(refusal("{\"a\": 1}\0"s), "f is not JSON: it goes wrong at byte 9");
  EXPECT_EQ(refusal("{\"a\": 1}\0{\"b\": 2}"s), "f is not JSON: it goes wrong at byte 9");
  EXPECT_EQ(refusal("{\"a\0b\": 1}"s), "f is not JSON: it goes wrong at byte 4");
  EXPECT_EQ(refusal("\0"s), "f is not JSON: it goes wrong at byte 1");
}

std::string without_literals(const std::string& document) {
  std::istringstream from(document);
  NumberLiterals literals(from);
  std::istream content(&literals);
  return {std::istreambuf_iterator<char>(content), {}};
}

TEST(NumberLiterals, BecomeEmptyTextsOfTheSameLength) {
  EXPECT_EQ(without_literals(R"([NaN,-Infinity, Infinity,-1,null])"), R"(["" ,""       , ""      ,-1,null])");
  EXPECT_EQ(without_literals(R"({"NaN":"a\"NaN","b":NaN})"), R"({"NaN":"a\"NaN","b":"" })");
  EXPECT_EQ(without_literals(""), "");
  EXPECT_EQ(without_literals("-Infinit"), "-Infinit");
  // At every position relative to the block boundaries.
  for (size_t before = (1 << 16) - 12; before < (1 << 16) + 2; ++before) {
    const std::string blanks(before, ' ');
    EXPECT_EQ(without_literals(blanks + "-Infinity]"), blanks + "\"\"       ]") << before;
    EXPECT_EQ(without_literals(blanks + "\"\\\"NaN\""), blanks + "\"\\\"NaN\"") << before;
  }
}

}  // namespace
}  // namespace tessera
