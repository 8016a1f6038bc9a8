// Random expressions against a matcher that lists all ends of a match in the order of preference.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "text/pattern.h"
#include "text/text_testing.h"

namespace tessera::tokens {
namespace {

// The ends of the matches that begin at a place of a text, the preferred one first, each once. The rest of an
// expression depends on the place alone, so the first occurrence of an end decides.
using Ends = std::vector<size_t>;
using Matcher = std::function<Ends(std::u32string_view text, size_t at)>;

struct Expression {
  std::string text;
  Matcher ends;
};

void append(Ends& ends, const Ends& more) {
  for (const size_t end : more)
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
}

Expression character(RandomStream& random) {
  struct Class {
    const char* text;
    std::function<bool(char32_t)> holds;
  };
  static const std::vector<Class> classes = {
      {"a", [](char32_t c) { return c == 'a'; }},
      {"b", [](char32_t c) { return c == 'b'; }},
      {".", [](char32_t c) { return c != '\n'; }},
      {"[ab]", [](char32_t c) { return c == 'a' || c == 'b'; }},
      {"[^a]", [](char32_t c) { return c != 'a'; }},
      {"(?i:b)", [](char32_t c) { return c == 'b' || c == 'B'; }},
      {R"(\s)", [](char32_t c) { return c == '\n'; }},
      {R"(\p{Lu})", [](char32_t c) { return c == 'B'; }},
      {R"([\w&&[^b]])", [](char32_t c) { return c == 'a' || c == 'B'; }},
  };
  const Class& one = classes[random.below(classes.size())];
  return {one.text, [&one](std::u32string_view text, size_t at) {
            return at < text.size() && one.holds(text[at]) ? Ends{at + 1} : Ends{};
          }};
}

Expression anchor(RandomStream& random) {
  const auto if_true = [](const char* text, bool (*holds)(std::u32string_view text, size_t at)) {
    return Expression{
        text, [holds](std::u32string_view chars, size_t at) { return holds(chars, at) ? Ends{at} : Ends{}; }};
  };
  switch (random.below(4)) {
    case 0:
      return if_true("^", [](std::u32string_view text, size_t at) {
        return at == 0 || (text[at - 1] == '\n' && at < text.size());
      });
    case 1:
      return if_true(
          "$", [](std::u32string_view text, size_t at) { return at == text.size() || text[at] == '\n'; });
    case 2:
      return if_true("\\A", [](std::u32string_view, size_t at) { return at == 0; });
    default:
      return if_true("\\z", [](std::u32string_view text, size_t at) { return at == text.size(); });
  }
}

Matcher sequence(const Matcher& first, const Matcher& second) {
  return [=](std::u32string_view text, size_t at) {
    Ends ends;
    for (const size_t middle : first(text, at)) append(ends, second(text, middle));
    return ends;
  };
}

// The first `min` times are required, the others are nested options. Without a `max`, an empty time is the last.
Ends repeated(const Matcher& part, size_t min, size_t max, bool lazy, std::u32string_view text, size_t at) {
  Ends more;
  if (max > 0)
    for (const size_t end : part(text, at)) {
      const bool last = max == Pattern::kMany && min == 0 && end == at;
      append(more,
             last ? Ends{at}
                  : repeated(part, min - (min > 0), max == Pattern::kMany ? max : max - 1, lazy, text, end));
    }
  if (min > 0) return more;
  Ends ends = lazy ? Ends{at} : more;
  append(ends, lazy ? more : Ends{at});
  return ends;
}

// Repeats a part by a random count from counts[first] on.
Expression repeat(RandomStream& random, const Expression& part, size_t first = 0) {
  struct Count {
    const char* text;
    size_t min, max;
    bool counted;
  };
  static constexpr Count counts[] = {
      {"?", 0, 1, false},
      {"*", 0, Pattern::kMany, false},
      {"+", 1, Pattern::kMany, false},
      {"{2}", 2, 2, true},
      {"{1,3}", 1, 3, true},
      {"{,2}", 0, 2, true},
      {"{1,}", 1, Pattern::kMany, true},
  };
  const Count& count = counts[first + random.below(std::size(counts) - first)];
  std::string text = part.text + count.text;
  const bool lazy = count.min < count.max && random.below(3) == 0;
  const bool possessive = !lazy && !count.counted && random.below(4) == 0;
  if (lazy) text += "?";
  if (possessive) text += "+";
  Matcher ends = [=, inner = part.ends](std::u32string_view chars, size_t at) {
    Ends all = repeated(inner, count.min, count.max, lazy, chars, at);
    if (possessive && all.size() > 1) all.resize(1);
    return all;
  };
  Expression out{text, ends};
  // A repeat of a counted repeat needs no group, but a "?" after "{1,3}" would make it lazy.
  if (!count.counted || lazy || random.below(4) > 0) return out;
  return repeat(random, out, count.min < count.max ? 1 : 0);
}

Expression expression(RandomStream& random, int depth);

Expression atom(RandomStream& random, int depth) {
  if (depth == 0 || random.below(3) == 0) return character(random);
  const Expression inner = expression(random, depth - 1);
  switch (random.below(8)) {
    case 0:
      return {"(?>" + inner.text + ")", [inner](std::u32string_view text, size_t at) {
                Ends ends = inner.ends(text, at);
                if (ends.size() > 1) ends.resize(1);
                return ends;
              }};
    case 1:
    case 2: {
      const bool negated = random.below(2) == 1;
      return {(negated ? "(?!" : "(?=") + inner.text + ")", [=](std::u32string_view text, size_t at) {
                return inner.ends(text, at).empty() == negated ? Ends{at} : Ends{};
              }};
    }
    case 3:
      return anchor(random);
    case 4:
      return {"(" + inner.text + ")", inner.ends};
    default:
      return {"(?:" + inner.text + ")", inner.ends};
  }
}

// Returns one to three alternatives, each a sequence of up to three atoms with or without repeats.
Expression expression(RandomStream& random, int depth) {
  Expression out;
  for (uint64_t ways = random.below(3) + 1; ways > 0; --ways) {
    Expression way{"", [](std::u32string_view, size_t at) { return Ends{at}; }};
    for (uint64_t atoms = random.below(4); atoms > 0; --atoms) {
      Expression next = atom(random, depth);
      if (random.below(2)) next = repeat(random, next);
      way = {way.text + next.text, sequence(way.ends, next.ends)};
    }
    if (!out.ends) {
      out = way;
      continue;
    }
    out = {out.text + "|" + way.text,
           [before = out.ends, next = way.ends](std::u32string_view text, size_t at) {
             Ends ends = before(text, at);
             append(ends, next(text, at));
             return ends;
           }};
  }
  return out;
}

// Compares the matches at all places of a text. Returns false if one takes too many steps.
bool compare(const Pattern& pattern, const Expression& wanted, const std::u32string& text) {
  size_t first = text.size();
  try {
    for (size_t at = text.size() + 1; at-- > 0;) {
      const Ends ends = wanted.ends(text, at);
      const auto got = pattern.match_at(text, at);
      EXPECT_EQ(got ? *got : Pattern::kMany, ends.empty() ? Pattern::kMany : ends[0])
          << wanted.text << " on " << to_utf8(text) << " at " << at;
      if (!ends.empty() && ends[0] > at) first = at;
    }
    const auto found = pattern.find(text, 0);
    EXPECT_EQ(found ? found->start : text.size(), first) << wanted.text << " on " << to_utf8(text);
  } catch (const Error&) {
    return false;
  }
  return true;
}

TEST(PatternProperties, PreferredEndOfAll) {
  int too_long = 0;
  for (uint64_t sample = 0; sample < 1500; ++sample) {
    RandomStream random(31, "expressions", sample);
    const Expression wanted = expression(random, 2);
    const Pattern pattern(wanted.text, "a test");
    for (int i = 0; i < 4; ++i) too_long += !compare(pattern, wanted, random_chars(random, U"aabbB\n", 6));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_LT(too_long, 30);  // (?:|…){1,3}{2}{2} has 3^12 ways
}

}  // namespace
}  // namespace tessera::tokens
