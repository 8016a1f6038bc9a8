// JSON as Python's json module writes it: NaN, Infinity and -Infinity, which JSON does not know, stand where numbers do.
#pragma once

#include <array>
#include <istream>
#include <streambuf>

namespace tessera {

// Reads another stream and puts an empty text ("") in the place of each of the three, with spaces behind it, so that a
// parser reads on at the same bytes and finds that there is no number. What stands inside of texts stays as it is.
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
