#include "io/files/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

class ReplacedFiles : public TemporaryFolder {
 protected:
  std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      return error.what();
    }
    return "";
  }
  void expect_refusals();
};

// The refusals last as long as the process, so a child has them.
TEST_F(ReplacedFiles, AreNotReadByAnyNameAndKeptIfSomethingTried) {
  EXPECT_EXIT((expect_refusals(), ::_exit(HasFailure() ? 1 : 0)), testing::ExitedWithCode(0), "");
}

void ReplacedFiles::expect_refusals() {
  write_text_atomic(path("out"), "old");
  write_text_atomic(path("other"), "old");
  std::filesystem::create_hard_link(path("out"), path("hard"));
  std::filesystem::create_symlink("out", path("soft"));
  for (const char* name : {"out", "other", "missing"})
    refuse_to_read(path(name), [name](const std::string& read) { return text(name, " replaces ", read); });
  for (const char* name : {"hard", "soft", "out"}) {
    const std::string first = "out replaces " + path("hard");  // the first attempt
    EXPECT_EQ(refusal([&] { read_text(path(name)); }), first);
    EXPECT_EQ(refusal([&] { MappedFile(path(name)); }), first);
  }
  EXPECT_EQ(refusal([&] { write_text_atomic(path("out"), "new"); }), "out replaces " + path("hard"));
  EXPECT_EQ(refusal([&] { write_text_atomic(path("other"), "new"); }), "");
  std::filesystem::rename(path("out"), path("kept"));
  write_text_atomic(path("missing"), "new");
  EXPECT_EQ(read_text(path("missing")), "new");
  EXPECT_EQ(read_text(path("other")), "new");
}

}  // namespace
}  // namespace tessera
