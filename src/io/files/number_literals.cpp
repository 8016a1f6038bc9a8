#include "io/files/number_literals.h"

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

bool is_part_of_literal(char c) { return c == '-' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Returns the length of a literal at the start of `rest`, or 0.
size_t literal_at(std::string_view rest) {
  for (const std::string_view literal : {"NaN", "Infinity", "-Infinity"})
    if (rest.starts_with(literal)) return literal.size();
  return 0;
}

}  // namespace

NumberLiterals::int_type NumberLiterals::underflow() {
  from_.read(block_.data(), kBlock);
  std::streamsize size = from_.gcount();
  // Extend the block so that it does not end within a literal.
  while (size > 0 && size < std::ssize(block_) && is_part_of_literal(block_[static_cast<size_t>(size - 1)]) &&
         from_.read(block_.data() + size, 1))
    ++size;
  if (size == 0) return traits_type::eof();
  replace_literals(block_.data(), block_.data() + size);
  setg(block_.data(), block_.data(), block_.data() + size);
  return traits_type::to_int_type(block_[0]);
}

void NumberLiterals::replace_literals(char* begin, char* end) {
  for (char* at = begin; at != end; ++at) {
    if (escaped_) {
      escaped_ = false;
    } else if (*at == '"') {
      in_text_ = !in_text_;
    } else if (in_text_) {
      escaped_ = *at == '\\';
    } else if (*at == 'N' || *at == 'I' || *at == '-') {
      const size_t length = literal_at({at, static_cast<size_t>(end - at)});
      if (length == 0) continue;
      std::fill_n(at, length, ' ');
      at[0] = at[1] = '"';
      at += length - 1;
    }
  }
}

}  // namespace tessera
