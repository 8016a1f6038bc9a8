// Filters a program's output, so that it cannot move the cursor or hide a line. Control characters may come
// from names of classes and files, metadata, and columns of tables.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace tessera {

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
