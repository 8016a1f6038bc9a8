// Folders in the form of Hugging Face's imagefolder. The pairs of image and label are those that its loader gives.
#include <gtest/gtest.h>

#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/base/source.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "io/images/image.h"

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

// COCO as it is unpacked: a task that reads texts takes the captions, others the boxes.
TEST(Captions, OfCocoComeBeforeItsBoxesForTasksOfTexts) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val"}) {
    folder.write(text(split, "2017/1.jpg"), "x");
    const std::string images = R"({"images": [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}], )";
    folder.write(text("annotations/captions_", split, "2017.json"),
                 images + R"("annotations": [{"image_id": 1, "caption": ")" + split + R"("}]})");
    folder.write(text("annotations/instances_", split, "2017.json"),
                 images + R"("categories": [{"id": 1, "name": "cat"}], "annotations": []})");
  }
  for (const Split split : {Split::train, Split::validation}) {
    SourceConfig config{.path = folder.path()};
    EXPECT_TRUE(open_source(config, split)->describe().starts_with("COCO "));
    config.captions = CaptionUse::over_boxes;
    for (const char* own : {"", "other"}) {
      config.val_path = *own != 0 ? folder.path() : "";
      const auto source = open_source(config, split);
      ASSERT_EQ(source->size(), 1);
      EXPECT_EQ(source->read(0).annotation.captions, Names{split == Split::train ? "train" : "val"});
    }
  }
}

TEST(Captions, AreNoPartOfASetForTasksWithoutTexts) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) folder.write(text("set/", name, ".png"), "x");
  folder.write("set/a.txt", "a dog"), folder.write("set/b.txt", "a cat");
  const std::string table = folder.write("t.csv", "path,caption\nset/a.png,one\nset/b.png,two\n");
  for (const std::string& path : {folder.path("set"), table}) {
    const auto open = [&](CaptionUse captions) {
      return open_source({.path = path, .val_share = 0, .captions = captions}, Split::train);
    };
    EXPECT_FALSE(open(CaptionUse::as_found)->read(0).annotation.captions.empty());
    const auto before = open(CaptionUse::none);
    EXPECT_TRUE(before->read(0).annotation.captions.empty());
    folder.write("set/a.txt", "another dog"),
        folder.write("t.csv", "path,caption\nset/a.png,x\nset/b.png,y\n");
    EXPECT_EQ(open(CaptionUse::none)->fingerprint(), before->fingerprint());
  }
}

TEST(Metadata, TablesOfSplitsNextToImages) {
  const TemporaryFolder folder;
  for (const char* image : {"a.jpg", "b.jpg", "c.jpg", "d.jpg"}) folder.write(text("images/", image), "x");
  folder.write("train.csv", "id,class\na,cat\nb,cat\n");
  folder.write("test.csv", "id\nd\n");
  const SourceConfig config{.path = folder.path("")};
  EXPECT_EQ(source_kind(config.path), "metadata");
  EXPECT_EQ(open_source(config, Split::train)->size() + open_source(config, Split::validation)->size(), 2);
  folder.write("val.csv", "id,class\nc,cat\n");
  folder.write("test.csv", "id,class\nd,dog\n");
  EXPECT_EQ(pairs_in(*open_source(config, Split::train)), (Names{"a.jpg cat", "b.jpg cat"}));
  EXPECT_EQ(pairs_in(*open_source(config, Split::validation)), Names{"c.jpg cat"});
  // Kaggle's layout, and one table by another name.
  folder.write("kaggle/train/a.jpg", "x"), folder.write("kaggle/train/b.jpg", "x"),
      folder.write("kaggle/test/c.jpg", "x");
  folder.write("kaggle/train.csv", "id,label\na,dog\nb,dog\n");
  folder.write("kaggle/sample_submission.csv", "id,label\nc,0\n");
  EXPECT_EQ(pairs_in(*open_source({.path = folder.path("kaggle"), .val_share = 0}, Split::train)),
            (Names{"a.jpg dog", "b.jpg dog"}));
  folder.write("one/images/a.jpg", "x"), folder.write("one/labels.csv", "filename,label\na.jpg,cat\n");
  EXPECT_EQ(pairs_in(*open_source({.path = folder.path("one"), .val_share = 0}, Split::train)),
            Names{"a.jpg cat"});
  // Class folders keep their classes.
  folder.write("images/cat/e.jpg", "x");
  EXPECT_EQ(source_kind(config.path), "ImageFolder");
}

TEST(Metadata, ObjectsOfHuggingFace) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "validation"}) {
    folder.write(text(split, "/a.png"), ""), folder.write(text(split, "/b.png"), "");
    for (const char* name : {"/a.png", "/b.png"})
      write_file_atomic(folder.path(split + std::string(name)), encode_png(Image(32, 24)));
  }
  folder.write("train/metadata.jsonl",
               "{\"file_name\": \"a.png\", \"objects\": {\"bbox\": [[2.5, 3, 10, 8], [1, 1, 4, 4]], "
               "\"category\": [3, 0]}}\n"
               "{\"file_name\": \"b.png\", \"objects\": {\"bbox\": [], \"category\": []}}\n");
  folder.write("validation/metadata.jsonl",
               "{\"file_name\": \"b.png\", \"objects\": [{\"bbox\": [0, 0, 5, 5], \"category_id\": 1}]}\n");
  const SourceConfig config{.path = folder.path()};
  EXPECT_EQ(source_kind(config.path), "metadata objects");
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  ASSERT_EQ(train->size(), 2);
  ASSERT_EQ(held_out->size(), 1);
  const ObjectLabels& labels = *object_labels(*train);
  EXPECT_EQ(labels.object_classes(), (Names{"0", "1", "2", "3"}));
  require_same_objects(*train, *held_out);
  const Instance& box = labels.objects(0).at(0).box;
  EXPECT_EQ(std::vector<double>({box.left, box.top, box.right, box.bottom}),
            (std::vector<double>{2.5, 3, 12.5, 11}));
  EXPECT_EQ(box.label, 3);
  EXPECT_TRUE(labels.objects(1).empty());
  folder.write("classes.txt", "cat\ndog\nowl\nfox\n");
  EXPECT_EQ(object_labels(*open_source(config, Split::train))->object_classes(),
            (Names{"cat", "dog", "owl", "fox"}));
  folder.write("train/metadata.jsonl",
               "{\"file_name\": \"a.png\", \"objects\": {\"bbox\": [[2, 3, 10, 8]], \"category\": [3, 0]}}\n"
               "{\"file_name\": \"a.png\", \"objects\": {\"bbox\": [[2, 3, 10]], \"category\": [3]}}\n"
               "{\"file_name\": \"a.png\", \"objects\": {\"bbox\": [[2, 3, 10, 8]], \"category\": [7]}}\n");
  const std::string where = folder.path("train/metadata.jsonl line ");
  EXPECT_EQ(
      open_source_with_problems(config, Split::train)->problems(),
      (Names{where + "1: 'objects' must have the lists 'bbox' and 'category', of one length",
             where + "2: a 'bbox' is [2,3,10], must be [left, top, width, height] in pixels, with an area",
             where + "3: the category '7' is none of cat, dog, owl, fox"}));
}

TEST(Metadata, NamesOfObjectsInOneTable) {
  const TemporaryFolder folder;
  std::string lines;
  for (const char* name : {"train/a", "train/b", "test/c"}) {
    folder.write(text(name, ".png"), "");
    write_file_atomic(folder.path(text(name, ".png")), encode_png(Image(32, 24)));
    lines +=
        text("{\"file_name\": \"", name,
             ".png\", \"objects\": {\"bbox\": [[2, 3, 10, 8]], \"category\": [\"class of ", name, "\"]}}\n");
  }
  folder.write("metadata.jsonl", lines);
  const SourceConfig config{.path = folder.path()};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(held_out->size(), 1);
  EXPECT_EQ(object_labels(*held_out)->object_classes(),
            (Names{"class of test/c", "class of train/a", "class of train/b"}));
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
