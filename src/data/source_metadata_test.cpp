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

// Roboflow's export of images with several labels.
TEST(Metadata, RoboflowsTablesOfClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"train/a.png", "train/b.png", "valid/c.png"}) folder.write(name, "x");
  folder.write("train/_classes.csv", "filename, cat, dog\na.png, 1, 0\nb.png, 1, 1\n");
  folder.write("valid/_classes.csv", "filename, cat, dog\nc.png, 0, 1\n");
  const SourceConfig config{.path = folder.path("")};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"cat", "dog"}));
  EXPECT_EQ(labels_in(*train).labels(1), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(labels_in(*held_out).labels(0), std::vector<int64_t>{1});
}

TEST(Captions, TextsNextToImagesAreCaptions) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) folder.write(text("set/", name, ".png"), "x");
  folder.write("set/a.txt", "a dog\nan animal\n"), folder.write("set/notes.md", "x");
  const SourceConfig config{.path = folder.path("set"), .val_share = 0};
  EXPECT_EQ(open_source(config, Split::train)->describe(),
            text("ImageFolder ", folder.path("set"), ", 2 images, no labels; left out: 1 .md, 1 .txt"));
  folder.write("set/b.txt", "a cat");
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(source->read(0).annotation.captions, (Names{"a dog", "an animal"}));
  EXPECT_TRUE(source->describe().ends_with("2 images, no labels; left out: 1 .md"));
  folder.write("set/b.txt", "2 dogs on a bed");
  EXPECT_EQ(open_source(config, Split::train)->read(1).annotation.captions, Names{"2 dogs on a bed"});
  // Boxes of YOLO, ICDAR and KITTI, and texts that cannot be read, are no captions.
  for (const char* other :
       {"0 0.5 0.5 0.2 0.2", "0\t0.5\t0.5\t0.2\t0.2", "377,117,463,117,465,130,378,130,Genaxis",
        "Car 0.00 0 -1.57 599.41 156.40 629.75 189.25", "caf\xE9"}) {
    folder.write("set/b.txt", other);
    EXPECT_EQ(open_source(config, Split::train)->read(0).annotation.captions, Names{}) << other;
  }
}

TEST(Captions, CocosFolderOfCaptions) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val"}) {
    folder.write(text(split, "2017/1.jpg"), "x");
    folder.write(
        text("annotations/captions_", split, "2017.json"),
        text(R"({"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "caption": ")",
             split, R"("}]})"));
  }
  for (const Split split : {Split::train, Split::validation}) {
    const auto source = open_source({.path = folder.path("")}, split);
    ASSERT_EQ(source->size(), 1);
    EXPECT_EQ(source->read(0).annotation.captions, Names{split == Split::train ? "train" : "val"});
  }
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
