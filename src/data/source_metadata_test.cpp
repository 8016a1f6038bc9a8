// Folders in the form of Hugging Face's imagefolder. The pairs of image and label are those that its loader gives.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/source.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

using Names = std::vector<std::string>;

// Returns "file label" of each sample.
Names pairs_in(const Source& source) {
  Names out;
  for (int64_t i = 0; i < source.size(); ++i) {
    const std::string name = source.read(i).name;
    out.push_back(name.substr(name.rfind('/') + 1) + " " + label_text(*source.class_labels(), i, ","));
  }
  return out;
}

TEST(Metadata, SplitFoldersHaveTablesOfTheirOwn) {
  const TemporaryFolder folder;
  for (const char* image : {"train/a.png", "train/b.png", "train/c.png", "test/d.png"})
    folder.write(image, "x");
  folder.write("train/metadata.csv", "file_name,label\na.png,dog\nb.png,cat\nc.png,red star\n");
  folder.write("test/metadata.csv", "file_name,label\nd.png,cat\n");
  const SourceConfig config{.path = folder.path("")};
  EXPECT_EQ(source_kind(config.path), "metadata");
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(pairs_in(*train), (Names{"a.png dog", "b.png cat", "c.png red star"}));
  EXPECT_EQ(pairs_in(*held_out), Names{"d.png cat"});
  EXPECT_EQ(held_out->class_labels()->class_names(), (Names{"cat", "dog", "red star"}));
  // The same by two paths.
  const auto other =
      open_source({.path = folder.path("train"), .val_path = folder.path("test")}, Split::validation);
  EXPECT_EQ(pairs_in(*other), Names{"d.png cat"});
}

TEST(Metadata, OneTableForSplitFolders) {
  const TemporaryFolder folder;
  for (const char* image : {"train/a.png", "train/b.png", "test/c.png"}) folder.write(image, "x");
  folder.write("metadata.csv", "file_name,label\ntrain/a.png,dog\ntest/c.png,cat\ntrain/b.png,cat\n");
  const SourceConfig config{.path = folder.path("")};
  EXPECT_EQ(source_kind(config.path), "metadata");
  EXPECT_EQ(pairs_in(*open_source(config, Split::train)), (Names{"a.png dog", "b.png cat"}));
  EXPECT_EQ(pairs_in(*open_source(config, Split::validation)), Names{"c.png cat"});
}

TEST(Metadata, CaptionsInAFolderOfImages) {
  const TemporaryFolder folder;
  folder.write("set/images/a.png", "x");
  folder.write("set/images/b.png", "x");
  folder.write("set/metadata.jsonl",
               "{\"file_name\": \"images/a.png\", \"text\": \"a dog\"}\n"
               "{\"file_name\": \"images/b.png\", \"text\": \"a cat\"}\n");
  const SourceConfig config{.path = folder.path("set"), .val_share = 0};
  const auto source = open_source(config, Split::train);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->read(0).annotation.captions, Names{"a dog"});
}

TEST(Metadata, ClassFoldersStayClassFolders) {
  const TemporaryFolder folder;
  folder.write("cat/a.png", "x");
  folder.write("dog/b.png", "x");
  folder.write("metadata.csv", "file_name,size\ncat/a.png,1\ndog/b.png,2\n");
  EXPECT_EQ(source_kind(folder.path("")), "ImageFolder");
  folder.write("plain/metadata.csv", "image,size\na.png,1\n");
  folder.write("plain/a.png", "x");
  EXPECT_EQ(source_kind(folder.path("plain")), "ImageFolder");
}

}  // namespace
}  // namespace tessera::data
