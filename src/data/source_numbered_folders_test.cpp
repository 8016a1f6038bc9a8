// Folders called 0, 1, … next to a list of the classes' names.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

using Names = std::vector<std::string>;

class NumberedFolders : public testing::Test {
 protected:
  void put(const Names& folders, const std::string& split = "") const {
    for (const std::string& name : folders) folder_.write(split + name + "/x.jpg", "x");
  }
  Names classes(SourceConfig config = {}, Split split = Split::train) const {
    config.path = folder_.path(), config.val_share = 0;
    return labels_in(*open_source(config, split)).class_names();
  }
  Names warnings() const {
    return open_source({.path = folder_.path(), .val_share = 0}, Split::train)->warnings();
  }
  TemporaryFolder folder_;
};

TEST_F(NumberedFolders, AreNamedByListsOfUsualNames) {
  put({"0", "1", "2"});
  EXPECT_EQ(classes(), (Names{"0", "1", "2"}));
  for (const auto& [file, content] : std::initializer_list<std::pair<const char*, const char*>>{
           {"classes.txt", "cat\ndog\nowl\n"},
           {"labels.txt", "0 cat\n1 dog\n2 owl\n"},
           {"class_names.txt", "cat\ndog\nowl\n"},
           {"imagenet_class_index.json",
            R"({"0": ["n1", "cat"], "1": ["n2", "dog"], "2": ["n3", "owl"], "3": ["n4", "fox"]})"}}) {
    folder_.write(file, content);
    EXPECT_EQ(classes(), (Names{"cat", "dog", "owl"})) << file;
    std::filesystem::remove(folder_.path(file));
  }
  EXPECT_EQ(classes({.class_names = folder_.write("other.txt", "a\nb\nc\n")}), (Names{"a", "b", "c"}));
}

TEST_F(NumberedFolders, MayCountFromOneAndHaveSplits) {
  for (const char* split : {"train/", "val/"}) put({"01", "02", "10"}, split);
  std::string names;
  for (int i = 1; i <= 10; ++i) names += text("kind ", static_cast<char>('a' + i), "\n");
  folder_.write("classes.txt", names);
  for (const Split split : {Split::train, Split::validation})
    EXPECT_EQ(classes({}, split), (Names{"kind b", "kind c", "kind k"}));
}

TEST_F(NumberedFolders, AListOfOtherLengthIsNotReadWithALine) {
  put({"0", "1", "2"});
  folder_.write("labels.txt", "cat\ndog\n");
  EXPECT_EQ(classes(), (Names{"0", "1", "2"}));
  EXPECT_EQ(warnings(),
            Names{"the folders' numbers are the names of the classes: " + folder_.path("labels.txt") +
                  " has 2 names, but the folders are 0 to 2: they must count from 0 or 1 to the last name"});
  EXPECT_EQ(
      error_of([&] { classes({.class_names = folder_.path("labels.txt")}); }, &folder_),
      "DIR/labels.txt has 2 names, but the folders are 0 to 2: they must count from 0 or 1 to the last name");
  put({"cat"});
  EXPECT_EQ(warnings(), Names{});  // words name the classes
}

}  // namespace
}  // namespace tessera::data
