// Text for terminals: characters that a terminal executes instead of displaying, widths in columns, words of a shell.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace tessera {

// Returns the length of the well-formed UTF-8 character at `i`, or 0.
size_t utf8_length(std::string_view bytes, size_t i);

// True if a well-formed character is a control character: C0, C1, DEL, a line separator, or a change of the
// writing direction.
bool is_control(std::string_view character);

// Appends each byte as \xNN.
void append_escaped(std::string& out, std::string_view bytes);

// Returns the text with control characters as \xNN, for multi-line text such as a table with external names.
// Newline, tab, and invalid UTF-8 that no terminal executes stay as they are.
std::string without_controls(std::string_view content);

// Returns the columns of UTF-8 text on a terminal: two for East Asian characters and emoji, none for combining
// marks.
size_t display_width(std::string_view content);
// Returns the text padded with blanks to a width in columns.
std::string padded(std::string_view content, size_t width);

// Returns a word for a shell's command line, in single quotes if needed.
std::string shell_quoted(std::string_view word);

// Returns the number of final bytes, 0 to 3, that begin an incomplete UTF-8 character.
size_t unfinished_utf8(std::string_view bytes);

// While it lives, writes control characters and changes of the writing direction to the stream as \xNN.
// Newline and tab pass.
class PrintableStream {
 public:
  explicit PrintableStream(std::ostream& stream);
  ~PrintableStream();
  PrintableStream(const PrintableStream&) = delete;

 private:
  std::ostream& stream_;
  std::unique_ptr<std::streambuf> filter_;
  std::streambuf* before_;
};

// Returns the stream's buffer without the filter, for the program's own control characters.
std::streambuf* unfiltered(std::ostream& stream);

}  // namespace tessera
