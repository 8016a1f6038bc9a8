// Tokenisers' splitting expressions: the subset of regular expressions that published files use.
//
// Alternation, groups (plain, "(?:", "(?i:", atomic "(?>"), classes with ranges, nested classes,
// intersections and POSIX names, \p{…} of general categories and East Asian scripts, \s \d \w \h and their
// opposites, greedy, lazy and possessive repeats, look-ahead, ^ and $ (of a line), \A \z. The semantics are
// Oniguruma's. Matching backtracks over code points. All matches of a text together have a limited number of
// steps. Unsupported syntax is an error when the expression is read.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace tessera::tokens {

struct Match {
  size_t start = 0, end = 0;
};

class Pattern {
 public:
  static constexpr size_t kMany = std::numeric_limits<size_t>::max();  // maximum of an unlimited repeat
  // Throws Error with `where` and the position of unsupported syntax.
  Pattern(std::string_view expression, const std::string& where);
  // Returns a pattern that matches exactly these characters.
  static Pattern literal(std::u32string_view chars);

  // Returns the number of steps for all matches in a text of that many characters. Published expressions take
  // fewer than ten steps a character.
  static uint64_t steps_for(size_t characters) { return (uint64_t{1} << 24) + 256 * uint64_t{characters}; }
  // Returns the first match that starts at `from` or later; skips empty matches. Subtracts its steps from
  // `steps` and throws Error if they run out. Long expressions may take more steps.
  std::optional<Match> find(std::u32string_view text, size_t from, uint64_t& steps) const;
  // The same with the full number of steps for one match.
  std::optional<Match> find(std::u32string_view text, size_t from) const {
    uint64_t steps = steps_for(text.size());
    return find(text, from, steps);
  }
  // Returns the end of the match that starts exactly at `at`; it may be empty.
  std::optional<size_t> match_at(std::u32string_view text, size_t at) const;

  // A set of characters.
  struct Set {
    struct Range {
      char32_t low, high;
    };
    std::vector<Range> ranges;
    uint32_t categories = 0;
    bool spaces = false, no_spaces = false;  // \s, \S
    bool negated = false, ignore_case = false;
    std::vector<Set> any;           // nested classes: the set includes them
    std::vector<Set> all;           // if not empty, the set is the intersection of only these
    std::array<bool, 128> ascii{};  // the results for ASCII, after settle()

    bool holds(char32_t c) const { return c < 128 ? ascii[c] : look_up(c); }
    bool look_up(char32_t c) const;
    void settle();
  };
  enum class Op {
    set,
    repeat,
    split,
    jump,
    mark,
    leave,
    look,
    atomic,
    line_begin,
    line_end,
    begin,
    end,
    match
  };
  // set: one character of sets[x]. repeat: sets[x], min to max times, by `mode`. split: try x, then y. jump:
  // x. mark: notes the place in marks[x]. leave: y if the place is still that of marks[x]. look, atomic: the
  // program at x up to its `match`, then y. If `negated`, a look-ahead must not match.
  struct Instruction {
    Op op;
    size_t x = 0, y = 0, min = 0, max = 0;
    char mode = 'g';  // greedy, lazy ('l'), possessive ('p')
    bool negated = false;
  };

 private:
  struct Ways;

  Pattern() = default;
  // Returns the end of a match of the program at `start` from `at`, or nothing. Decrements `left`.
  std::optional<size_t> run(size_t start, std::u32string_view text, size_t at, uint64_t& left) const;

  std::string where_;
  std::vector<Set> sets_;
  std::vector<Instruction> program_;
  size_t marks_ = 0;
  friend class PatternParser;
};

// Reads a pattern of tokenizer.json: {"Regex": expression} or {"String": characters}.
Pattern read_pattern(const nlohmann::json& settings, const std::string& where);

// The named character classes of splitting expressions.

// Adds Oniguruma's \w.
void add_word(Pattern::Set& set);
// Returns the characters of a script ("Han"), or null if the script is unknown.
const std::vector<Pattern::Set::Range>* script_ranges(std::string_view name);
// Adds \h.
void add_hex_digits(Pattern::Set& set);
// Adds "[:name:]". Returns false if the name is unknown.
bool add_posix(std::string_view name, Pattern::Set& set);

}  // namespace tessera::tokens
