#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"

namespace tessera::data {
namespace {

TEST(ForeignFiles, ContainersOfOtherProgramsAreNamed) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& path) {
    return error_of([&] { open_source({.path = path}, Split::train); }, &folder);
  };
  const std::string save = "save its images as files with a table of their labels, or as tar shards";
  EXPECT_EQ(open(folder.write("set.zip", "PK")),
            "data path 'DIR/set.zip' is a zip archive, which is not read: unpack it and give the folder");
  EXPECT_EQ(open(folder.write("set.h5", "\x89HDF")),
            "data path 'DIR/set.h5' is an HDF5 file, which is not read: " + save);
  folder.write("hub/data/train-00000-of-00001.parquet", "PAR1");
  folder.write("hub/README.md", "a data set");
  EXPECT_EQ(
      open(folder.path("hub")),
      "data path 'DIR/hub' has no images; 'DIR/hub/data/train-00000-of-00001.parquet' is a Parquet file, "
      "which is not read: " +
          save);
  folder.write("disk/data-00000-of-00001.arrow", "ARROW1");
  EXPECT_TRUE(open(folder.path("disk")).find("is an Arrow file, which is not read: " + save) !=
              std::string::npos);
}

TEST(ForeignFiles, AListOfSplitsNextToFoldersIsNamedAsNotRead) {
  const TemporaryFolder folder;
  for (const char* image : {"images/001.wren/a.png", "images/001.wren/b.png", "images/002.tern/c.png"})
    folder.write(image, "x");
  folder.write("train_test_split.txt", "1 1\n2 0\n3 1\n");
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(
      error_of([&] { fail(source->warnings()[0]); }, &folder),
      "DIR/train_test_split.txt is not read: make a table of the images, their labels and a column `split`");
}

}  // namespace
}  // namespace tessera::data
