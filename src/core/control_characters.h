// Characters that a terminal obeys instead of showing them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Length of the well-formed UTF-8 character that starts at `i`, or 0.
size_t utf8_length(std::string_view bytes, size_t i);

// Whether a well-formed character is such: of C0 or C1, DEL, a separator of lines, or one that turns the
// direction of writing.
bool is_control(std::string_view character);

// Each of the bytes as \xNN.
void append_escaped(std::string& out, std::string_view bytes);

// Text of several lines and columns, such as a table with names from outside: control characters as \xNN, but
// newline and tab stay, and so do bytes that are no UTF-8 and that no terminal obeys.
std::string without_controls(std::string_view content);

// Bytes at the end that begin a UTF-8 character whose others are missing, 0 to 3.
size_t unfinished_utf8(std::string_view bytes);

}  // namespace tessera
