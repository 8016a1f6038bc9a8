// A terminal obeys control characters wherever they come from: names of classes and files, metadata, columns of
// tables. What a program prints passes through here, so that none of it can move the cursor or hide a line.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace tessera {

// As long as it lives, whatever is written to the stream has control characters but newline and tab, and those
// that turn the direction of writing, as \xNN.
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

// The stream's buffer behind such a filter, for the control characters of the program itself.
std::streambuf* unfiltered(std::ostream& stream);

}  // namespace tessera
