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

TEST(ForeignFiles, OwnFormsOfLabellingToolsAreNamed) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& path) {
    return error_of([&] { open_source({.path = path}, Split::train); }, &folder);
  };
  const std::string remedy =
      ", which is not read: export objects as COCO, Pascal VOC or YOLO, and classes of images as CSV with "
      "columns "
      "`path` and `label`";
  EXPECT_EQ(
      open(folder.write("a.json", R"([{"id": 1, "annotations": [{"result": [{"value": {"choices": ["x"]},
      "from_name": "kind", "type": "choices"}]}], "data": {"image": "/data/upload/1/a.png"}}])")),
      "DIR/a.json is Label Studio's own JSON" + remedy);
  EXPECT_EQ(open(folder.write(
                "v.json", R"({"a.png1": {"filename": "a.png", "regions": [{"region_attributes": {}}]}})")),
            "DIR/v.json is a file of the VGG Image Annotator" + remedy);
  const std::string xml = folder.write("set/annotations.xml", "<?xml version=\"1.0\"?>\n<annotations>\n");
  EXPECT_EQ(open(xml), "DIR/set/annotations.xml is CVAT's own XML" + remedy);
  folder.write("set/images/a.png", "x");
  const auto source = open_source({.path = folder.path("set"), .val_share = 0}, Split::train);
  ASSERT_FALSE(source->warnings().empty());
  EXPECT_EQ(error_of([&] { fail(source->warnings()[0]); }, &folder),
            "DIR/set/annotations.xml is CVAT's own XML" + remedy);
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

TEST(ForeignFiles, ListsOfSplitsNextToFoldersAreNamedAsNotRead) {
  const TemporaryFolder folder;
  for (const char* image : {"images/pie/1.png", "images/pie/2.png", "images/soup/3.png", "images/soup/4.png"})
    folder.write(image, image);
  folder.write("meta/train.txt", "pie/1\nsoup/3\n"), folder.write("meta/test.txt", "pie/2\nsoup/4\n");
  folder.write("meta/classes.txt", "pie\nsoup\n"), folder.write("meta/test_notes.txt", "about the test\n");
  const auto source = open_source({.path = folder.path()}, Split::train);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(
      error_of([&] { fail(source->warnings()[0]); }, &folder),
      "DIR: lists of splits are not read (meta/test.txt, meta/train.txt): give one as the data and one as "
      "the validation data");
  // A path without a folder is in the working directory.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(
      open_source({.path = "images"}, Split::train)->warnings(),
      std::vector<std::string>{".: lists of splits are not read (meta/test.txt, meta/train.txt): give one as "
                               "the data and one as the validation data"});
  std::filesystem::current_path(before);
  const auto listed = open_source(
      {.path = folder.path("meta/train.txt"), .val_path = folder.path("meta/test.txt")}, Split::validation);
  EXPECT_EQ(labels_of(*listed), (std::vector<int64_t>{0, 1}));
}

// Folders without images, next to the one that holds the classes, are none.
TEST(ForeignFiles, FoldersWithoutImagesAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"images/pie/a.png", "images/pie/b.png", "images/soup/c.png", "images/soup/d.png",
                           "meta/train.txt", "Annotations/pie/1.mat"})
    folder.write(name, name);
  const auto train = open_source({.path = folder.path()}, Split::train);
  EXPECT_EQ(labels_in(*train).class_names(), (std::vector<std::string>{"pie", "soup"}));
  // An empty folder may be a class that lacks its images.
  const TemporaryFolder classes;
  for (const char* name : {"cat/old/a.png", "cat/young/b.png"}) classes.write(name, name);
  std::filesystem::create_directory(classes.path("dog"));
  EXPECT_EQ(error_of([&] { open_source({.path = classes.path()}, Split::train); }, &classes),
            "DIR/dog is an empty class: no image in it");
}

TEST(ForeignFiles, FoldersAndTablesNextToTheDataAreNamedAsNotRead) {
  const TemporaryFolder folder;
  for (const char* name : {"Train/0/a.png", "Train/0/b.png", "Train/1/c.png", "Test/0/d.png", "Test/1/e.png",
                           "Meta/0.png", "Train_more/0/f.png", "notes/x.txt"})
    folder.write(name, name);
  folder.write("Train.csv", "Width,ClassId,Path\n9,0,Train/0/a.png\n");
  folder.write("sizes.csv", "a,b\n1,2\n");
  const auto train = open_source({.path = folder.path()}, Split::train);
  EXPECT_EQ(train->size(), 3);
  EXPECT_EQ(open_source({.path = folder.path()}, Split::validation)->size(), 2);
  std::vector<std::string> lines;
  for (const std::string& line : train->warnings()) lines.push_back(error_of([&] { fail(line); }, &folder));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "DIR: 2 folders with images next to Train are not read: Meta, Train_more",
                       "DIR/Train.csv is not read: give it as the data to use its labels"}));
}

// A folder of features with links to itself is walked once.
TEST(ForeignFiles, LinksBackNextToTheDataAreFollowedOnce) {
  const TemporaryFolder folder;
  for (const char* name : {"train/cat/a.png", "train/dog/b.png", "val/cat/c.png", "val/dog/d.png",
                           "features/a.npy", "more/plain/f.png"})
    folder.write(name, name);
  for (const char* link : {"features/one", "features/two"})
    std::filesystem::create_directory_symlink(folder.path("features"), folder.path(link));
  const auto train = open_source({.path = folder.path()}, Split::train);
  EXPECT_EQ(train->size(), 2);
  ASSERT_EQ(train->warnings().size(), 1u);
  EXPECT_EQ(error_of([&] { fail(train->warnings()[0]); }, &folder),
            "DIR: 1 folder with images next to train is not read: more");
}

// As lost+found next to the splits, or the home folders of others above the data.
TEST(ForeignFiles, FoldersThatCannotBeListedNextToTheDataEndNothing) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  for (const char* name : {"set/train/cat/a.png", "set/train/dog/b.png", "set/val/cat/c.png",
                           "set/val/dog/d.png", "set/lost+found/x", "all/cat/a.png", "all/dog/b.png"})
    folder.write(name, name);
  fs::permissions(folder.path("set/lost+found"), fs::perms::none);
  fs::permissions(folder.path(), fs::perms(0711));
  const bool root = ::geteuid() == 0;  // root lists every folder
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "no other user";
  std::error_code error;
  const bool visible = fs::exists(folder.path("set/train"), error);
  const std::string line = visible ? error_of([&] {
    EXPECT_EQ(open_source({.path = folder.path("set")}, Split::train)->size(), 2);
    EXPECT_EQ(open_source({.path = folder.path("all"), .val_share = 0}, Split::train)->size(), 2);
  })
                                   : "no error";
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder.path("set/lost+found"), fs::perms::owner_all);
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_EQ(line, "no error");
}

// Held-out images in one more folder have no labels, which a table gives.
TEST(ForeignFiles, HeldOutImagesInOneFolderHaveNoLabels) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train/n1/images/a.png", "train/n2/images/b.png", "val/images/c.png", "val/images/d.png"})
    folder.write(name, name);
  folder.write("val/notes.txt", "c.png\tn2\t0\t32\t44\t62\nd.png\tn1\t1\t2\t3\t4\n");
  const auto train = open_source({.path = folder.path()}, Split::train),
             held_out = open_source({.path = folder.path()}, Split::validation);
  EXPECT_EQ(held_out->size(), 2);
  EXPECT_EQ(held_out->class_labels(), nullptr);
  EXPECT_NE(error_of([&] { require_same_classes(*train, *held_out); }).find("--val-data names a table"),
            std::string::npos);
  const auto table =
      open_source({.path = folder.path(), .val_path = folder.path("val/notes.txt")}, Split::validation);
  EXPECT_EQ(labels_of(*table), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(table->read(0).name, folder.path("val/images/c.png"));
}

}  // namespace
}  // namespace tessera::data
