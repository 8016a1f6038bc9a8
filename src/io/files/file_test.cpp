#include "io/files/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file_faults.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class FileTest : public TemporaryFolder {
 protected:
  void TearDown() override { FileFaults::set(""); }
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20, (size_t{3} << 20) + 1}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 2654435761u >> 11);
    write_text_atomic(path("f"), content);
    EXPECT_EQ(read_text(path("f")), content) << size;
    EXPECT_EQ(as_text(read_file(path("f"))), content) << size;
    EXPECT_EQ(as_text(MappedFile(path("f")).bytes()), content) << size;
  }
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
}

TEST_F(FileTest, ReadsPipesAndProcFilesWhoseSizeNobodyKnows) {
  EXPECT_FALSE(read_text("/proc/self/status").empty());
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string content(100000, 'x');
  const pid_t child = ::fork();
  if (child == 0) {
    FILE* out = ::fopen(path("pipe").c_str(), "w");
    ::fwrite(content.data(), 1, content.size(), out);
    ::fclose(out);
    ::_exit(0);
  }
  EXPECT_EQ(read_text(path("pipe")), content);
  ::waitpid(child, nullptr, 0);
}

TEST_F(FileTest, ErrorsNameThePathAndTheReason) {
  write_text_atomic(path("f"), "12345");
  EXPECT_EQ(error_of([&] { MappedFile{path("none")}; }),
            "cannot open '" + path("none") + "': No such file or directory");
  std::filesystem::create_symlink("none", path("link"));
  EXPECT_EQ(
      error_of([&] { read_file(path("link")); }),
      "cannot open '" + path("link") + "': it is a link to '" + path("none") + "', which does not exist");
  EXPECT_EQ(error_of([&] { read_file(path("f/x")); }), "cannot open '" + path("f/x") + "': Not a directory");
  EXPECT_EQ(error_of([&] { MappedFile{folder()}; }), "'" + folder() + "' is a directory, must be a file");
  EXPECT_EQ(error_of([&] { read_text(folder()); }), "'" + folder() + "' is a directory, must be a file");
  EXPECT_EQ(error_of([&] { MappedFile("/dev/null"); }),
            "'/dev/null' is a device or a pipe, must be a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { MappedFile{path("pipe")}; }),
            "'" + path("pipe") + "' is a device or a pipe, must be a regular file");
  EXPECT_EQ(error_of([&] { read_text(path("f"), 4); }),
            "'" + path("f") + "' has 5 bytes, at most 4 bytes are read here");
  EXPECT_EQ(read_text(path("f"), 5), "12345");
  EXPECT_EQ(error_of([&] { read_text("/dev/zero", 10000); }),
            "'/dev/zero' has more than 10000 bytes, at most 10000 bytes are read here");
  EXPECT_EQ(error_of([&] { read_text("/dev/zero", uint64_t{1} << 40); }),
            "'/dev/zero' has more than 268435456 bytes, at most 268435456 bytes are read here");
}

TEST_F(FileTest, WritingIsRefusedWhereNothingCanBeWritten) {
  EXPECT_EQ(error_of([&] { write_text_atomic(folder(), "x"); }),
            "cannot write '" + folder() + "': it is a directory");
  EXPECT_EQ(error_of([&] { write_text_atomic("/dev/full", "x"); }),
            "cannot write '/dev/full': it is not a regular file");
  EXPECT_EQ(error_of([&] { write_text_atomic(path("no/f"), "x"); }),
            "cannot write '" + path("no/f") + "': No such file or directory");
  EXPECT_EQ(error_of([&] { AppendFile{folder()}; }), "cannot write '" + folder() + "': Is a directory");
  EXPECT_EQ(error_of([&] { AppendFile("/dev/full").write("x"); }),
            "cannot write '/dev/full': No space left on device");
  EXPECT_TRUE(names().empty());
}

TEST_F(FileTest, AReadOnlyDirectoryIsNamed) {
  if (::geteuid() == 0) FileFaults::set("open:1:EACCES");  // root may write everywhere
  ::chmod(folder().c_str(), 0500);
  EXPECT_EQ(error_of([&] { write_text_atomic(path("f"), "x"); }),
            "cannot write '" + path("f") + "': Permission denied");
  ::chmod(folder().c_str(), 0700);
  EXPECT_TRUE(names().empty());
}

TEST_F(FileTest, AFileThatMayNotGrowLeavesTheOldOneAndNothingElse) {
  write_text_atomic(path("f"), "old");
  // In a child, because the limit would affect the test's own output.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 100000, 100000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = error_of([&] { write_text_atomic(path("f"), std::string(3 << 20, 'n')); });
    ::_exit(said == "cannot write '" + path("f") + "': File too large" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(path("f")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
}

// Every operation fails in turn, with every result: the whole old or new file remains, and nothing else.
TEST_F(FileTest, AnyFailureLeavesTheOldOrTheNewFile) {
  const std::string before(10, 'o'), after((2 << 20) + 5, 'n');
  const auto write = [&] {
    AtomicFile file(path("f"));
    file.write(std::string_view(after).substr(0, 1000));
    file.write(std::string_view(after).substr(1000));
    file.commit();
  };
  for (const std::string result : {"ENOSPC", "EIO", "EINTR", "SHORT"}) {
    int failures = 0;
    for (int64_t at = 1;; ++at) {
      FileFaults::set("");
      write_text_atomic(path("f"), before);
      FileFaults::set(text("any:", at, ":", result));
      const std::string said = error_of(write);
      const bool done = FileFaults::count() < at;
      FileFaults::set("");
      const std::string found = read_text(path("f"));
      EXPECT_EQ(names(), std::vector<std::string>{"f"}) << result << " at " << at;
      if (said.empty())
        EXPECT_EQ(found, after) << result << " at " << at;
      else {
        EXPECT_TRUE(found == before || found == after) << result << " at " << at;
        EXPECT_TRUE(said.starts_with("cannot write ")) << said;
        ++failures;
      }
      if (done) break;
      ASSERT_LT(at, 100);
    }
    // open, two writes, fsync, rename, fsync of the directory; EINTR and short writes are not failures.
    EXPECT_EQ(failures, result[1] == 'N' || result == "EIO" ? 6 : 0) << result;
  }
}

TEST_F(FileTest, AKilledWriterLeavesTheOldFileAndItsTemporaryIsFoundLater) {
  const std::string before(10, 'o'), after(100, 'n');
  int left = 0;
  for (int at = 1; at <= 5; ++at) {
    write_text_atomic(path("f"), before);
    const pid_t child = ::fork();
    if (child == 0) {
      FileFaults::set(text("any:", at, ":KILL"));
      write_text_atomic(path("f"), after);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << at;
    EXPECT_EQ(read_text(path("f")), at <= 4 ? before : after) << at;
    left += static_cast<int>(names().size()) - 1;
    EXPECT_EQ(remove_stale_temporaries(folder()), static_cast<int>(names().size()) == 1 ? 0 : 1);
    EXPECT_EQ(names(), std::vector<std::string>{"f"}) << at;
  }
  EXPECT_EQ(left, 3);  // killed at write, fsync, rename
}

TEST_F(FileTest, TemporariesOfLivingWritersAndStrangersStay) {
  AtomicFile file(path("f"));
  write_text_atomic(path("g.tmp-elsewhere-1-1"), "");
  EXPECT_EQ(remove_stale_temporaries(folder()), 0);
  EXPECT_EQ(names().size(), 2u);
}

// After a reboot this process may have the number of a killed one.
TEST_F(FileTest, ALeftoverOfOnesOwnNumberIsPassedOverAndRemoved) {
  std::string temporary;
  {
    AtomicFile file(path("f"));
    temporary = names().at(0);
  }
  const size_t dash = temporary.rfind('-');
  const int64_t next = parse_int(temporary.substr(dash + 1)).value() + 1;
  for (const int64_t number : {next, next + 1})
    std::ofstream(path(temporary.substr(0, dash + 1) + std::to_string(number))) << "left";
  EXPECT_EQ(remove_stale_temporaries(folder()), 2);
  std::ofstream(path(temporary.substr(0, dash + 1) + std::to_string(next))) << "left";
  write_text_atomic(path("f"), "new");
  EXPECT_EQ(read_text(path("f")), "new");
}

TEST_F(FileTest, WithoutCommitNothingHappens) {
  write_text_atomic(path("f"), "old");
  { AtomicFile(path("f")).write("new"); }
  EXPECT_EQ(read_text(path("f")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"f"});
}

TEST_F(FileTest, AfterAFailedWriteNothingIsCommitted) {
  write_text_atomic(path("f"), "old");
  {
    AtomicFile file(path("f"));
    FileFaults::set("write:1:EIO");
    EXPECT_EQ(error_of([&] { file.write(std::string(2 << 20, 'n')); }),
              "cannot write '" + path("f") + "': Input/output error");
    EXPECT_NE(error_of([&] { file.commit(); }), "");
  }
  EXPECT_EQ(read_text(path("f")), "old");
}

TEST_F(FileTest, ReplacingKeepsTheModeAndFollowsLinks) {
  write_text_atomic(path("f"), "old");
  ::chmod(path("f").c_str(), 0640);
  fs::create_symlink("f", path("link"));
  write_text_atomic(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text(path("f")), "new");
  struct stat status {};
  ::stat(path("f").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  fs::create_symlink("not-yet", path("early"));
  write_text_atomic(path("early"), "first");
  EXPECT_TRUE(fs::is_symlink(path("early")));
  EXPECT_EQ(read_text(path("not-yet")), "first");
}

TEST_F(FileTest, ChecksumsAreXxh3) {
  // The published XXH3-64 of no bytes.
  EXPECT_EQ(checksum_of({}), "2d06800538d394c2");
  const std::string content = "tessera";
  AtomicFile file(path("f"));
  for (const char c : content) file.write(std::string_view(&c, 1));
  EXPECT_EQ(file.checksum(), checksum_of(as_bytes(content)));
  EXPECT_EQ(file.size(), content.size());
  EXPECT_NE(checksum_of(as_bytes("tesserb")), checksum_of(as_bytes(content)));
  const std::string pieces((size_t{16} << 20) + 5, 'x');
  write_text_atomic(path("pieces"), pieces);
  EXPECT_EQ(MappedFile(path("pieces")).checksum(), checksum_of(as_bytes(pieces)));
  EXPECT_EQ(MappedFile().checksum(), checksum_of({}));
}

TEST_F(FileTest, AnAppendThatFailsLeavesWholeLines) {
  AppendFile file(path("log"));
  file.write("one\n");
  FileFaults::set("write:2:ENOSPC");
  file.write("two\n");
  FileFaults::set("write:1:SHORT");
  file.write("three\n");
  FileFaults::set("write:1:SHORT");
  AppendFile(path("log")).write("four\n");
  // Half of a line, then no space: the half is removed.
  FileFaults::set("");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 25, 25 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = error_of([&] { file.write("a longer line\n"); });
    ::_exit(said == "cannot write '" + path("log") + "': File too large" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(path("log")), "one\ntwo\nthree\nfour\n");
  FileFaults::set("fsync:1:EIO");
  EXPECT_EQ(error_of([&] { file.sync(); }), "cannot write '" + path("log") + "': Input/output error");
}

TEST_F(FileTest, ATemporaryFileIsMappedAndNeverSeen) {
  MappedFile map;
  {
    ::setenv("TMPDIR", folder().c_str(), 1);
    TemporaryFile file("unpacking 'x'");
    file.write(as_bytes("some "));
    file.write(as_bytes("bytes"));
    EXPECT_TRUE(names().empty());
    map = file.map();
    FileFaults::set("write:1:ENOSPC");
    EXPECT_EQ(error_of([&] { file.write(as_bytes("x")); }),
              "unpacking 'x': cannot write a temporary file in '" + folder() +
                  "': No space left on device; TMPDIR may name another folder");
    ::setenv("TMPDIR", path("none").c_str(), 1);
    EXPECT_EQ(
        error_of([] { TemporaryFile("unpacking 'x'"); }),
        "unpacking 'x': cannot make a temporary file in '" + path("none") + "': No such file or directory");
    ::unsetenv("TMPDIR");
  }
  EXPECT_EQ(as_text(map.bytes()), "some bytes");
}

TEST_F(FileTest, DirectoriesAreMadeAndRemoved) {
  make_directories(path("a/b/c/"));
  make_directories(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  write_text_atomic(path("a/f"), "x");
  EXPECT_EQ(error_of([&] { make_directories(path("a/f/b")); }),
            "cannot make the directory '" + path("a/f") + "': File exists");
  EXPECT_EQ(error_of([&] { make_directories(path("a/f")); }),
            "cannot make the directory '" + path("a/f") + "': File exists");
  remove_all(path("a"));
  remove_all(path("a"));
  EXPECT_FALSE(file_exists(path("a")));
  FileFaults::set("mkdir:2:ENOSPC");
  EXPECT_EQ(error_of([&] { make_directories(path("d/e")); }),
            "cannot make the directory '" + path("d/e") + "': No space left on device");
}

TEST_F(FileTest, FreeSpaceIsThatOfTheNearestExistingFolder) {
  EXPECT_GT(free_disk_bytes(folder()), 0u);
  EXPECT_GT(free_disk_bytes(path("not/yet/there")), 0u);
  EXPECT_EQ(free_disk_bytes("/proc"), 0u);
}

TEST(FileFaults, AMisspelledFaultIsAUsageError) {
  for (const std::string bad :
       {"write", "write:0:EIO", "write:x:EIO", "writ:1:EIO", "write:1:EWHAT", "write:1:EIO:"}) {
    try {
      FileFaults::set(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      EXPECT_EQ(error.what(),
                "TESSERA_FAULT is '" + bad + "', must be like write:7:ENOSPC (see io/files/file_faults.h)");
    }
  }
}

TEST_F(FileTest, MovingADirectoryPutsTheWholeNewOneInPlace) {
  const auto make = [&](const char* name, const char* content) {
    make_directories(path(name));
    write_text_atomic(path(name) + "/f", content);
  };
  make("fresh", "1");
  move_directory(path("fresh"), path("d"));
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
  make("fresh", "2");
  move_directory(path("fresh"), path("d"));
  EXPECT_EQ(read_text(path("d") + "/f"), "2");
  EXPECT_EQ(read_text(path("fresh") + "/f"), "1");  // the old one, which the caller removes
  FileFaults::set("rename:1:EIO");
  EXPECT_EQ(error_of([&] { move_directory(path("fresh"), path("d")); }),
            "cannot rename '" + path("fresh") + "' to '" + path("d") + "': Input/output error");
  EXPECT_EQ(read_text(path("d") + "/f"), "2");
  FileFaults::set("rename:1:EINVAL");  // a file system that cannot exchange names
  move_directory(path("fresh"), path("d"));
  EXPECT_EQ(read_text(path("d") + "/f"), "1");
  EXPECT_EQ(read_text(path("fresh") + "/f"), "2");
}

TEST_F(FileTest, ALinkIsReplacedByRename) {
  replace_symlink("one", path("latest"));
  replace_symlink("two", path("latest"));
  EXPECT_EQ(fs::read_symlink(path("latest")), "two");
  FileFaults::set("rename:1:EIO");
  EXPECT_NE(error_of([&] { replace_symlink("three", path("latest")); }), "");
  EXPECT_EQ(fs::read_symlink(path("latest")), "two");
  EXPECT_EQ(names(), std::vector<std::string>{"latest"});
}

TEST_F(FileTest, CutsAFileToItsBeginning) {
  write_text_atomic(path("f"), "12345");
  cut_file(path("f"), 2);
  EXPECT_EQ(read_text(path("f")), "12");
  FileFaults::set("truncate:1:EIO");
  EXPECT_EQ(error_of([&] { cut_file(path("f"), 1); }),
            "cannot cut '" + path("f") + "' to 1 bytes: Input/output error");
  EXPECT_EQ(error_of([&] { cut_file(path("none"), 1); }),
            "cannot write '" + path("none") + "': No such file or directory");
}

}  // namespace
}  // namespace tessera
