#include "data/base/image_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

TEST(ImageFiles, StandInTheOrderGivenFoldersByName) {
  const TemporaryFolder folder;
  const std::string late = folder.write("z.png", "z"), b = folder.write("in/b.JPG", "b"),
                    a = folder.write("in/a/c.webp", "c");
  folder.write("in/notes.txt", "no image");
  const ImageFiles images({late, folder.path("in"), "missing.png"});
  EXPECT_EQ(images.paths(), (std::vector<std::string>{late, a, b, "missing.png"}));
  EXPECT_EQ(std::get<std::vector<std::byte>>(images.read(2).picture), std::vector<std::byte>{std::byte{'b'}});
  EXPECT_EQ(images.describe(), "4 image files");
}

TEST(ImageFiles, StandardInputIsReadByWhoeverAllowsIt) {
  const ImageFiles images({"-", "a.png"}, [] { return std::vector<std::byte>{std::byte{'p'}}; });
  const RawSample piped = images.read(0);
  EXPECT_EQ(piped.name, "stdin");
  EXPECT_EQ(std::get<std::vector<std::byte>>(piped.picture), std::vector<std::byte>{std::byte{'p'}});
  EXPECT_EQ(images.name(0), "stdin");
  EXPECT_EQ(images.name(1), "a.png");
  EXPECT_EQ(error_of([] { ImageFiles({"-"}).read(0); }),
            "'-' is standard input, which this command does not read: name a file");
  EXPECT_EQ(error_of([] {
              ImageFiles({"-", "-"}, [] { return std::vector<std::byte>(); });
            }),
            "'-' is 2 times among the images: standard input can be read once");
}

TEST(ImageFiles, HiddenFilesArePassedOver) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "._a.png", "b/c.png", ".b/d.png", "__MACOSX/._a.png"})
    folder.write(name, "x");
  EXPECT_EQ(ImageFiles({folder.path()}).paths(),
            (std::vector<std::string>{folder.path("a.png"), folder.path("b/c.png")}));
}

TEST(ImageFiles, LinksToFoldersAreFollowedOnce) {
  const TemporaryFolder folder, elsewhere;
  const std::string image = folder.write("in/a.png", "a");
  elsewhere.write("b.png", "b");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder.path("in/more"));
  std::filesystem::create_directory_symlink(folder.path("in"), folder.path("in/round"));
  EXPECT_EQ(ImageFiles({folder.path("in")}).paths(),
            (std::vector<std::string>{image, folder.path("in/more/b.png")}));
}

// Each of these would exhaust memory or block for ever.
TEST(ImageFiles, WhatIsNoImageFileIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("empty"));
  std::filesystem::resize_file(folder.write("large.png", ""), uint64_t{3} << 30);
  ASSERT_EQ(::mkfifo(folder.path("pipe.png").c_str(), 0600), 0);
  const ImageFiles images({folder.path("large.png"), folder.path("pipe.png"), "/dev/zero",
                           folder.path("missing.png"), folder.path("empty")});
  ASSERT_EQ(images.size(), 5);
  const auto refusal = [&](int64_t index) { return error_of([&] { images.read(index); }, &folder); };
  EXPECT_EQ(refusal(0), "'DIR/large.png' has 3221225472 bytes, at most 268435456 bytes are read here");
  EXPECT_EQ(refusal(1), "'DIR/pipe.png' is a device or a pipe, must be a regular file");
  EXPECT_EQ(refusal(2), "'/dev/zero' is a device or a pipe, must be a regular file");
  EXPECT_EQ(refusal(3), "cannot open 'DIR/missing.png': No such file or directory");
  EXPECT_EQ(refusal(4), "'DIR/empty' holds no image");
}

TEST(FilesBelow, NoneOfTooMany) {
  const TemporaryFolder folder;
  for (const char* name : {"b/1.png", "a.txt", "b/c/2.png"}) folder.write(name, name);
  EXPECT_EQ(some_files_below(folder.path(), 3), files_below(folder.path()));
  EXPECT_EQ(some_files_below(folder.path(), 3).size(), 3u);
  EXPECT_TRUE(some_files_below(folder.path(), 2).empty());
}

}  // namespace
}  // namespace tessera::data
