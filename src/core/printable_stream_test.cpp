#include "core/control_characters.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/progress.h"
#include "core/text.h"

namespace tessera {
namespace {

std::string printed(const std::vector<std::string>& parts) {
  std::ostringstream out;
  {
    const PrintableStream filter(out);
    for (const std::string& part : parts) out << part;
  }
  return out.str();
}

TEST(TerminalText, ColumnsAreThoseOfATerminal) {
  EXPECT_EQ(display_width("cat"), 3);
  EXPECT_EQ(display_width("caf\u00e9"), 4);   // composed
  EXPECT_EQ(display_width("cafe\u0301"), 4);  // decomposed
  EXPECT_EQ(display_width("\u732b\u8a9e"), 4);
  EXPECT_EQ(display_width("\U0001F408"), 2);
  EXPECT_EQ(display_width("\xff"), 1);  // printed as it is
  EXPECT_EQ(padded("\u732b", 4), "\u732b  ");
  EXPECT_EQ(padded("long", 2), "long");
}

TEST(TerminalText, WordsOfAShellAreQuotedIfNeeded) {
  EXPECT_EQ(shell_quoted("runs/a-1/model.safetensors"), "runs/a-1/model.safetensors");
  EXPECT_EQ(shell_quoted("odd/a b"), "'odd/a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted("$(reboot)"), "'$(reboot)'");
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(PrintableStream, ControlCharactersAreShownNotObeyed) {
  EXPECT_EQ(printed({"a\x1b[2Jb\r\n\tc\x7f"}), "a\\x1b[2Jb\\x0d\n\tc\\x7f");
  EXPECT_EQ(printed({"\xc2\x9b"
                     "31m",
                     "\xe2\x80\xae"
                     "gpj.exe"}),
            "\\xc2\\x9b31m\\xe2\\x80\\xaegpj.exe");
  EXPECT_EQ(printed({"\x9b"
                     "31m \xe9t\xe9"}),
            "\\x9b31m \xe9t\xe9");
  EXPECT_EQ(printed({"é – 猫 █"}), "é – 猫 █");
}

TEST(PrintableStream, CharactersMayComeInPieces) {
  EXPECT_EQ(printed({"\xe2", "\x96", "\x88", "!"}), "█!");
  EXPECT_EQ(printed({"\xe2\x80", "\xae"}), "\\xe2\\x80\\xae");
  EXPECT_EQ(printed({"end \xe2\x80"}), "end \xe2\\x80");
}

TEST(PrintableStream, TheProgramsOwnControlsPass) {
  std::ostringstream out;
  const PrintableStream filter(out);
  std::ostream(unfiltered(out)) << "\x1b[K";
  EXPECT_EQ(out.str(), "\x1b[K");
}

TEST(PrintableStream, AFailureIsPassedOn) {
  std::ostringstream target;
  target.rdbuf()->pubsetbuf(nullptr, 0);
  std::ostream out(target.rdbuf());
  struct Full : std::streambuf {
    std::streamsize xsputn(const char*, std::streamsize) override { return 0; }
  } full;
  out.rdbuf(&full);
  const PrintableStream filter(out);
  out << "text";
  EXPECT_FALSE(out);
}

TEST(PrintableStream, AProgressLineDrawsThroughIt) {
  std::ostringstream out;
  const PrintableStream filter(out);
  ProgressLine::Options options;
  options.label = "train", options.total = 10, options.columns = 60;
  ProgressLine line(out, options);
  line.update(3, {{"class", "a\x1b[2J"}});
  line.print("new\x1b[31m\nline");
  const std::string text = out.str();
  EXPECT_NE(text.find("\x1b[K"), std::string::npos);
  EXPECT_NE(text.find("a\\x1b[2J"), std::string::npos);
  EXPECT_NE(text.find("new\\x1b[31m\\x0aline\n"), std::string::npos);
  EXPECT_EQ(text.find("\x1b[31m"), std::string::npos);
}

}  // namespace
}  // namespace tessera
