// Patterns of tensor names: "layers.{}.attn.*".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

// Matches and writes whole names. The k-th capture on one side of a row is the k-th on the other.
//   {}       a number n
//   {+2}     n + 2 in the name; {-1} n - 1, {*2} 2 n, {*2+1} 2 n + 1, {*2-1} 2 n - 1
//   {-}      a number that counts down: n = count - 1 - (number in the name)
//   {0}      0 in the name, no capture; for lists with only this entry
//   {each}   every number, no capture; the file repeats the same tensor for each
//   {any}    any characters, no capture; only for reading
//   *        one or more characters other than a dot
//   **       one or more characters
class NamePattern {
 public:
  struct Capture {
    int64_t number = 0;
    std::string text;
  };
  using Captures = std::vector<Capture>;

  explicit NamePattern(std::string_view pattern);
  // `count`: length of the list that {-} counts down.
  std::optional<Captures> match(std::string_view name, int64_t count = 0) const;
  std::string fill(const Captures& captures, int64_t count = 0, int64_t each = 0) const;
  // Returns the captures of the i-th test name.
  Captures sample(int64_t i) const;

  bool counts_down() const { return has(Kind::down); }
  bool is_alone() const { return has(Kind::alone); }
  bool is_each() const { return has(Kind::each); }
  // Returns the characters before the first capture.
  const std::string& beginning() const { return beginning_; }

 private:
  enum class Kind { literal, number, down, alone, each, any, word, rest };
  struct Part {
    Kind kind;
    std::string text = {};
    int64_t scale = 1, offset = 0;
  };
  bool has(Kind kind) const;
  bool match_from(size_t part, std::string_view name, int64_t count, Captures& captures) const;

  std::vector<Part> parts_;
  std::string beginning_;
};

// Returns one more than the largest number directly after `beginning` in the names, 0 if there is none.
int64_t count_after(const std::vector<std::string>& names, const std::string& beginning);

}  // namespace tessera::train
