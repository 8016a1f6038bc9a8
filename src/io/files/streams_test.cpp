#include <gtest/gtest.h>

#include <sstream>

#include "io/files/file.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

TEST(Streams, AStreamIsReadUpToALimit) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{3} << 20) + 1}) {
    std::istringstream in(std::string(size, 'a'));
    EXPECT_EQ(read_stream(in, "it", size).size(), size);
  }
  std::istringstream in(std::string(101, 'a'));
  EXPECT_EQ(error_of([&] { read_stream(in, "it", 100); }),
            "it has more than 100 bytes, at most that many are read");
}

TEST(Streams, LinesEndWithTheirNewlineOrWithCarriageReturnToo) {
  std::istringstream in("one\r\n\ntwo \r three\nlast");
  std::vector<std::string> lines;
  std::string line;
  while (read_line(in, line, "a line", 100)) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two \r three", "last"}));
}

TEST(Streams, ALineThatIsTooLongIsSkipped) {
  std::istringstream in("12345\n123456\nhi\n1234567");
  std::string line;
  EXPECT_TRUE(read_line(in, line, "a line", 5));
  EXPECT_EQ(error_of([&] { read_line(in, line, "a line", 5); }),
            "a line has more than 5 bytes, at most that many are read");
  EXPECT_TRUE(read_line(in, line, "a line", 5));
  EXPECT_EQ(line, "hi");
  EXPECT_NE(error_of([&] { read_line(in, line, "a line", 5); }), "");
  EXPECT_FALSE(read_line(in, line, "a line", 5));
}

}  // namespace
}  // namespace tessera
