// JSON as Python's json module writes it: with NaN, Infinity and -Infinity as numbers, which JSON does not
// allow.
#pragma once

#include <array>
#include <istream>
#include <streambuf>

namespace tessera {

// Reads another stream and replaces each of the three by an empty string ("") and spaces. A parser then keeps
// its byte positions and finds a value that is not a number. Text inside strings stays as it is.
class NumberLiterals final : public std::streambuf {
 public:
  explicit NumberLiterals(std::istream& from) : from_(from) {}

 protected:
  int_type underflow() override;

 private:
  void replace_literals(char* begin, char* end);

  static constexpr std::streamsize kBlock = 1 << 16, kLongest = 16;
  std::istream& from_;
  std::array<char, kBlock + kLongest> block_;
  bool in_text_ = false, escaped_ = false;
};

}  // namespace tessera
