#include "data/base/source.h"
#include "core/text.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "data/base/data_testing.h"
#include "data/base/source_kinds.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

// --- Named classes ---

TEST(Named, ClassesAreCaptionsAndSomeAreKeptFromTraining) {
  const auto open = [](const std::string& path, Split split) {
    return open_source({.path = path, .val_path = "named:shapes:train=20,val=30"}, split);
  };
  const std::string path = "named:without=disc,template=a {},template={} alone,shapes:train=60,val=5";
  const auto all = open_source({.path = "shapes:train=60"}, Split::train), train = open(path, Split::train);
  const int64_t discs = class_counts(*all)[0];
  ASSERT_GT(discs, 0);
  EXPECT_EQ(train->size(), 60 - discs);
  EXPECT_EQ(class_counts(*train)[0], 0);
  EXPECT_EQ(train->class_labels()->class_names(), all->class_labels()->class_names());
  for (int64_t i = 0; i < train->size(); ++i) {
    const std::string name = label_text(*train->class_labels(), i, ", ");
    EXPECT_EQ(train->read(i).annotation.captions, (std::vector<std::string>{"a " + name, name + " alone"}));
  }
  EXPECT_NE(train->fingerprint(),
            open("named:template=a {},template={} alone,shapes:train=60", Split::train)->fingerprint());
  // Validation has every class, and captions by its own path.
  const auto held_out = open(path, Split::validation);
  EXPECT_EQ(held_out->size(), 30);
  EXPECT_GT(class_counts(*held_out)[0], 0);
  EXPECT_EQ(held_out->read(0).annotation.captions,
            std::vector<std::string>{label_text(*held_out->class_labels(), 0, ", ")});
  require_same_classes(*train, *held_out);
}

TEST(Named, WhatCannotBeIsNamed) {
  const auto open = [](const std::string& path) {
    return error_of([&] { open_source({.path = path}, Split::train); });
  };
  EXPECT_EQ(
      open("named:without=disk,shapes:train=20"),
      "without=disk: shapes train, 20 images of 32x32, 10 shapes has no such class, did you mean 'disc'?");
  EXPECT_EQ(open("named:template=a,shapes"),
            "data path 'named:template=a,shapes': the template 'a' has no {} for the class's name");
  EXPECT_EQ(open("named:without=disc"),
            "data path 'named:without=disc' must be named:[without=CLASS,][template=TEXT,]PATH");
  EXPECT_EQ(open("named:shapes:task=segment"),
            "named: needs a class for each image, which shapes train, 20000 images of 32x32 with masks, 11 "
            "classes does not have");
}

// --- Kinds and splits ---

TEST(OpenSource, AnUnknownPathListsTheKinds) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& path) {
    return error_of([&] { open_source({.path = path}, Split::train); }, &folder);
  };
  EXPECT_EQ(open(""), "no data: give a path such as shapes:train=20000,val=2000,size=32");
  EXPECT_EQ(open(folder.path("none")), "data path 'DIR/none' does not exist");
  EXPECT_EQ(open("shpes:size=64"), "data path 'shpes:size=64' does not exist, did you mean 'shapes'?");
  EXPECT_TRUE(open(folder.write("notes.md", "x"))
                  .starts_with("data path 'DIR/notes.md' is of no known kind (shapes objects: shapes:task="));
  // One image is named as such, or as broken.
  EXPECT_EQ(open(folder.write("broken.jpg", "\xff\xd8\xff\xe0")),
            "DIR/broken.jpg: truncated JPEG, the file ends in its headers");
  EXPECT_EQ(open(folder.write("words.PNG", "words")),
            "DIR/words.PNG: not an image (must be a JPEG, PNG, WebP, GIF, BMP or TIFF image)");
  const std::vector<std::byte> png = encode_png(Image(2, 2));
  EXPECT_EQ(
      open(folder.write("whole", {reinterpret_cast<const char*>(png.data()), png.size()})),
      "data path 'DIR/whole' is one image, must be a set: a folder of images, or a list or table of them; "
      "`tessera predict` takes single images");
  EXPECT_EQ(error_of([] { open_source({.path = "shapes", .val_share = 1.0}, Split::train); }),
            "val_share is 1, must be at least 0 and below 1");
}

TEST(OpenSource, ShapesHaveTheirOwnSplits) {
  const SourceConfig config = {.path = "shapes:train=30,val=20,seed=1"};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(train->size(), 30);
  EXPECT_EQ(held_out->size(), 20);
  EXPECT_NE(train->fingerprint(), held_out->fingerprint());
  EXPECT_NE(train->fingerprint(),
            open_source({.path = "shapes:train=30,val=20,seed=2"}, Split::train)->fingerprint());
  EXPECT_EQ(std::get<Image>(train->read(3).picture).width, 32);
  EXPECT_EQ(train->describe(), "shapes train, 30 images of 32x32, 10 shapes");
  EXPECT_EQ(source_kind("shapes:size=64"), "shapes");
  require_same_classes(*train, *held_out);
}

TEST(OpenSource, DifferentClassesAreNamed) {
  const auto shapes = open_source({.path = "shapes"}, Split::train);
  const auto textures = open_source({.path = "shapes:task=texture"}, Split::train);
  EXPECT_EQ(error_of([&] { require_same_classes(*shapes, *textures); }),
            "class 0 is 'disc' in shapes train, 20000 images of 32x32, 10 shapes, but 'plain' in shapes "
            "train, 20000 "
            "images of 32x32, 8 textures");
}

TEST(OpenSource, OneLabelBesideSeveralIsRefused) {
  const TemporaryFolder folder;
  const auto open = [&](const char* name, const char* content) {
    return open_source({.path = folder.write(name, content), .val_share = 0}, Split::train);
  };
  const auto one = open("one.csv", "a.png,x\nb.png,y\n"),
             several = open("several.csv", "a.png,x|y\nb.png,y\n");
  EXPECT_EQ(
      error_of([&] { require_same_classes(*several, *one); }, &folder),
      "table DIR/several.csv, 2 images, 2 classes has several labels an image, but table DIR/one.csv, 2 "
      "images, 2 classes has one label");
  folder.write("flat/a.png", "x"), folder.write("flat/b.png", "x");
  const auto none = open_source({.path = folder.path("flat"), .val_share = 0}, Split::train);
  EXPECT_EQ(
      error_of([&] { require_same_classes(*one, *none); }, &folder),
      "table DIR/one.csv, 2 images, 2 classes has one label an image, but ImageFolder DIR/flat, 2 images, no "
      "labels has no label; --val-data names a table of its images and their classes");
}

TEST(ImageFolder, APipeIsNamedAndNotWaitedFor) {
  const TemporaryFolder folder;
  folder.write("a/x.png", "x");
  ASSERT_EQ(mkfifo(folder.path("a/y.png").c_str(), 0600), 0);
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(error_of([&] { source->read(1); }, &folder),
            "'DIR/a/y.png' is a device or a pipe, must be a regular file");
}

TEST(SelectSplit, IsAPartitionThatHoldsTheShareOfEveryClassAndIgnoresOrder) {
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 230; ++i)
    names.push_back("n" + std::to_string(i)), labels.push_back(i < 200 ? 0 : 1);
  const SourceConfig config = {.path = "x", .val_share = 0.1};
  const auto train = select_split(config, Split::train, names, labels);
  const auto held_out = select_split(config, Split::validation, names, labels);
  EXPECT_EQ(train.size() + held_out.size(), names.size());
  std::set<int64_t> all(train.begin(), train.end());
  all.insert(held_out.begin(), held_out.end());
  EXPECT_EQ(all.size(), names.size());
  EXPECT_EQ(std::count_if(held_out.begin(), held_out.end(), [](int64_t i) { return i < 200; }), 20);
  EXPECT_EQ(held_out.size(), 23u);

  std::set<std::string> chosen, chosen_reversed;
  for (const int64_t i : held_out) chosen.insert(names[static_cast<size_t>(i)]);
  std::reverse(names.begin(), names.end());
  std::reverse(labels.begin(), labels.end());
  for (const int64_t i : select_split(config, Split::validation, names, labels))
    chosen_reversed.insert(names[static_cast<size_t>(i)]);
  EXPECT_EQ(chosen, chosen_reversed);
  EXPECT_NE(held_out,
            select_split({.path = "x", .val_share = 0.1, .split_seed = 1}, Split::validation, names, labels));
}

TEST(SelectSplit, SamplesOfOneNameStayTogetherWhateverTheirClass) {
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 400; ++i)
    names.push_back("n" + std::to_string(i % 100)), labels.push_back(i < 350 ? i % 2 : 2);
  const SourceConfig config = {.path = "x", .val_share = 0.3};
  std::set<std::string> sets[2];
  for (const Split split : {Split::train, Split::validation})
    for (const int64_t i : select_split(config, split, names, labels))
      sets[split == Split::train ? 0 : 1].insert(names[static_cast<size_t>(i)]);
  EXPECT_EQ(sets[0].size(), 70u);
  EXPECT_EQ(sets[1].size(), 30u);
  for (const std::string& name : sets[1]) EXPECT_FALSE(sets[0].contains(name)) << name;
}

TEST(SelectSplit, SmallClassesKeepATrainingSampleAndGiveAHeldOutOne) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  const std::vector<int64_t> labels = {0, 1, 1, 2, 2};
  for (const double share : {0.01, 0.9}) {
    const SourceConfig config = {.path = "x", .val_share = share};
    EXPECT_EQ(select_split(config, Split::train, names, labels).size(), 3u) << share;
    EXPECT_EQ(select_split(config, Split::validation, names, labels).size(), 2u) << share;
  }
}

// --- ImageFolder ---

TEST(ImageFolder, TrainAndValFolders) {
  const TemporaryFolder folder;
  folder.write("train/cat/b.JPG", "2");
  folder.write("train/cat/a.png", "1");
  folder.write("train/cat/deep/c.webp", "3");
  folder.write("train/cat/notes.txt", "no image");
  folder.write("train/ant/z.jpeg", "4");
  folder.write("train/.hidden/x.jpg", "5");
  folder.write("val/ant/y.jpg", "6");
  folder.write("val/cat/y.jpg", "7");
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (std::vector<std::string>{"ant", "cat"}));
  ASSERT_EQ(train->size(), 4);
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 4; ++i) {
    names.push_back(train->read(i).name.substr(folder.path().size()));
    labels.push_back(labels_in(*train).label(i));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"/train/ant/z.jpeg", "/train/cat/a.png", "/train/cat/b.JPG",
                                             "/train/cat/deep/c.webp"}));
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(train->describe(),
            "ImageFolder " + folder.path("train") + ", 4 images, 2 classes; left out: 1 .txt");
  EXPECT_EQ(held_out->describe(), "ImageFolder " + folder.path("val") + ", 2 images, 2 classes");
  EXPECT_EQ(held_out->size(), 2);
  EXPECT_EQ(std::get<std::vector<std::byte>>(held_out->read(1).picture),
            std::vector<std::byte>{std::byte{'7'}});
  EXPECT_EQ(class_counts(*train), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(source_kind(folder.path()), "ImageFolder");
}

TEST(ImageFolder, WhatIsNoImageIsCountedBySuffixAndImagesNeedNone) {
  const TemporaryFolder folder;
  const auto bytes = encode_png(Image(2, 2));
  folder.write("a/plain", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  folder.write("b/scan.TIF", "read later");
  for (const char* name : {"a/x.heic", "b/y.heic", "b/notes", "stray.jpg"}) folder.write(name, "x");
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  EXPECT_EQ(source->describe(), "ImageFolder " + folder.path() +
                                    ", 2 images, 2 classes; left out: 2 .heic, 1 without suffix, "
                                    "1 image in no folder of a class");
}

TEST(ImageFolder, OneFolderIsSharedOut) {
  const TemporaryFolder folder;
  for (int i = 0; i < 20; ++i)
    for (const char* name : {"a/", "b/"}) folder.write(name + std::to_string(i) + ".png", "x");
  const SourceConfig config = {.path = folder.path(), .val_share = 0.25};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(class_counts(*train), (std::vector<int64_t>{15, 15}));
  EXPECT_EQ(class_counts(*held_out), (std::vector<int64_t>{5, 5}));
  std::set<std::string> names;
  for (const auto* source : {train.get(), held_out.get()})
    for (int64_t i = 0; i < source->size(); ++i) names.insert(source->read(i).name);
  EXPECT_EQ(names.size(), 40u);
  const auto whole = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  EXPECT_EQ(whole->size(), 40);
  EXPECT_EQ(
      error_of([&] { open_source({.path = folder.path(), .val_share = 0}, Split::validation); }, &folder),
      "DIR has no validation images");
  // Renaming a parent folder does not move samples between the splits.
  const TemporaryFolder other;
  std::filesystem::copy(folder.path(), other.path("copy"), std::filesystem::copy_options::recursive);
  const auto moved = open_source({.path = other.path("copy"), .val_share = 0.25}, Split::validation);
  for (int64_t i = 0; i < moved->size(); ++i)
    EXPECT_EQ(moved->read(i).name.substr(other.path("copy").size()),
              held_out->read(i).name.substr(folder.path().size()));
}

TEST(ImageFolder, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  folder.write("train/a/1.jpg", "x");
  folder.write("train/b/note.txt", "x");
  folder.write("val/a/1.jpg", "x");
  folder.write("val/c/1.jpg", "x");
  const SourceConfig config = {.path = folder.path()};
  const auto open = [&](Split split) { return error_of([&] { open_source(config, split); }, &folder); };
  EXPECT_EQ(open(Split::train), "DIR/train/b is an empty class: no image in it");
  EXPECT_EQ(open(Split::validation), "DIR/val/c is no class of the training set");
  SourceConfig free = config;
  free.reads_classes = false;
  EXPECT_EQ(open_source(free, Split::train)->size(), 1);
  EXPECT_EQ(open_source(free, Split::train)->warnings(),
            std::vector<std::string>{folder.path("train/b") + " is an empty class: no image in it"});
  EXPECT_EQ(open_source(free, Split::validation)->size(), 1);
  // A held-out set may lack images of a class.
  EXPECT_EQ(
      open_source_with_problems(config, Split::validation)->warnings(),
      std::vector<std::string>{folder.path("val") + " has no image of the class 'b' of the training set"});
  const TemporaryFolder bare;
  bare.write("1.txt", "x");
  EXPECT_EQ(error_of([&] { open_source({.path = bare.path()}, Split::train); }, &bare),
            "DIR holds no folders; an ImageFolder has a folder for each class, with images in it");
}

TEST(ImageFolder, ImagesAndMasksAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"train/images/a.png", "train/masks/a.jpg", "val/images/b.png", "val/masks/b.jpg"})
    folder.write(name, "x");
  const auto lines = open_source({.path = folder.path()}, Split::train)->warnings();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0],
      folder.path("train") +
          ": the folders images, masks are read as classes, but look like images and their "
          "annotations: give the folder that contains both, one for each split; masks must not be JPEG");
}

// Classes and the number of images of both splits: "apple berry 2+1".
std::string splits_of(const std::string& path) {
  const auto train = open_source({.path = path}, Split::train);
  const auto held_out = open_source({.path = path}, Split::validation);
  return text(join(labels_in(*train).class_names(), " "), " ", train->size(), "+", held_out->size());
}

TEST(ImageFolder, SplitsHaveTheirUsualNames) {
  const std::pair<const char*, const char*> names[] = {
      {"train", "val"},           {"Training", "Testing"},      {"TRAIN", "TEST"},
      {"training", "validation"}, {"train", "Validation"},      {"train", "dev"},
      {"train", "eval"},          {"seg_train", "seg_test"},    {"train2017", "val2017"},
      {"TrainSet", "TestSet"},    {"cats_train", "cats_valid"}, {"trainval", "test"},
      {"train", "hold-out"},      {"train", "held_out"}};
  for (const auto& [train, held_out] : names)
    for (const char* above : {"", "fruits/"})
      for (const bool doubled : {false, true}) {
        const TemporaryFolder folder;
        const auto write = [&, above = std::string(above)](const std::string& split, const char* file) {
          folder.write(above + split + (doubled ? "/" + split : "") + "/" + file, "x");
        };
        for (const char* file : {"apple/1.jpg", "berry/2.jpg"}) write(train, file);
        write(held_out, "apple/3.jpg");
        if (std::string_view(train).starts_with("seg")) write("seg_pred", "4.jpg");
        EXPECT_EQ(splits_of(folder.path()), "apple berry 2+1") << train << " " << above << doubled;
      }
}

TEST(ImageFolder, FoldersAboveTheClassesAreSkipped) {
  for (const char* above : {"set/", "set/more/", "train/animals/", "set/train/"}) {
    const TemporaryFolder folder;
    for (const char* file : {"cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"})
      folder.write(std::string(above) + file, text(above, file));
    folder.write("__MACOSX/set/cat/._1.jpg", "x");
    EXPECT_EQ(splits_of(folder.path()), "cat dog 2+2") << above;
  }
  // One class with further folders keeps its name.
  const TemporaryFolder one;
  for (const char* name : {"cat/1.jpg", "cat/young/2.jpg", "cat/old/3.jpg"}) one.write(name, name);
  EXPECT_EQ(labels_in(*open_source({.path = one.path()}, Split::train)).class_names(),
            std::vector<std::string>{"cat"});
}

TEST(ImageFolder, SplitsInsideTheClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"cat/train/1.jpg", "cat/train/2.jpg", "cat/val/3.jpg", "dog/Train/4.jpg",
                           "dog/test/5.jpg", "dog/test/6.jpg"})
    folder.write(name, name);
  EXPECT_EQ(splits_of(folder.path()), "cat dog 3+3");
  const auto held_out = open_source({.path = folder.path()}, Split::validation);
  EXPECT_EQ(class_counts(*held_out), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(held_out->read(0).name, folder.path("cat/val/3.jpg"));
  EXPECT_EQ(held_out->warnings(), std::vector<std::string>{});
}

TEST(ImageFolder, ClassesAreNotSplits) {
  const TemporaryFolder folder;
  for (const char* name : {"bus/1.jpg", "bus/2.jpg", "train/1.jpg", "train/2.jpg"}) folder.write(name, name);
  EXPECT_EQ(splits_of(folder.path()), "bus train 2+2");
  const TemporaryFolder levels;
  for (const char* name : {"one/a/1.jpg", "one/b/1.jpg", "two/a/2.jpg", "two/b/2.jpg"})
    levels.write(name, name);
  EXPECT_EQ(open_source({.path = levels.path()}, Split::train)->warnings(),
            std::vector<std::string>{text("the classes one, two of ", levels.path(),
                                          " hold the same folders a, b: if these are the classes, give one "
                                          "folder as the data and one as the validation data")});
}

TEST(ImageFolder, RunsAndHiddenFilesAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* name :
       {"a/1.jpg", "a/._1.jpg", "b/2.jpg", "b/run/samples/3.jpg", "b/run/metrics.jsonl", "b/run/recipe.toml",
        "run/recipe.toml", "run/metrics.jsonl", "sweep/one/recipe.toml", "sweep/one/metrics.jsonl",
        "sweep/results.csv", "runs/sweep/two/seed-0/recipe.toml", "runs/sweep/two/seed-0/metrics.jsonl",
        "__MACOSX/._a/1.jpg", "@eaDir/x/1.jpg"})
    folder.write(name, name);
  const auto source = open_source({.path = folder.path(), .val_share = 0}, Split::train);
  EXPECT_EQ(source->describe(),
            "ImageFolder " + folder.path() + ", 2 images, 2 classes; left out: 4 folders of runs");
}

TEST(ImageFolder, ClassesAreOrderedByLetterOrNumber) {
  const TemporaryFolder folder;
  for (const char* name : {"c1", "c2", "c10", "C11", "b"}) folder.write(text(name, "/1.jpg"), name);
  SourceConfig config = {.path = folder.path(), .val_share = 0};
  using Names = std::vector<std::string>;
  EXPECT_EQ(labels_in(*open_source(config, Split::train)).class_names(),
            (Names{"C11", "b", "c1", "c10", "c2"}));
  config.class_order = "natural";
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (Names{"b", "c1", "c2", "c10", "C11"}));
  EXPECT_EQ(source->read(3).name, folder.path("c10/1.jpg"));
}

TEST(ClassNumbers, MakeNoClassWithoutImages) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(classes_of_numbers({2, 0, 1, 1}), (Names{"0", "1", "2"}));
  EXPECT_EQ(classes_of_numbers({1, 2, 3}), (Names{"1", "2", "3"}));
  EXPECT_EQ(classes_of_numbers({2020, 1999, 2005}), (Names{"1999", "2005", "2020"}));
  EXPECT_EQ(classes_of_numbers({0, 2, 3}), (Names{"0", "1", "2", "3"}));  // one is missing by chance
  EXPECT_EQ(classes_of_numbers({}), Names{});
}

TEST(ImageFolder, PicturesWithoutFoldersHaveNoLabels) {
  const TemporaryFolder folder;
  for (int i = 0; i < 10; ++i) folder.write(text(i, ".jpg"), text(i));
  folder.write("note.txt", "x");
  const SourceConfig config = {.path = folder.path(), .val_share = 0.2};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(train->size() + held_out->size(), 10);
  EXPECT_EQ(held_out->size(), 2);
  EXPECT_EQ(train->class_labels(), nullptr);
  EXPECT_EQ(train->describe(), "ImageFolder " + folder.path() + ", 8 images, no labels; left out: 1 .txt");
  EXPECT_EQ(
      error_of([&] { require_labels(*train, "task classify"); }, &folder),
      "task classify needs a class for each image, which ImageFolder DIR, 8 images, no labels; left out: "
      "1 .txt does not have");
  const TemporaryFolder parted;
  parted.write("train/1.jpg", "x");
  parted.write("val/2.jpg", "x");
  EXPECT_EQ(open_source({.path = parted.path()}, Split::train)->size(), 1);
  EXPECT_EQ(open_source({.path = parted.path()}, Split::validation)->read(0).name, parted.path("val/2.jpg"));
}

TEST(ImageFolder, LinksThatLeadBackBringNothingTwice) {
  const TemporaryFolder folder;
  folder.write("cat/1.jpg", "x");
  folder.write("cat/more/2.jpg", "y");
  folder.write("dog/1.jpg", "z");
  for (const char* link : {"cat/self", "cat/more/up", "cat/again"})
    std::filesystem::create_directory_symlink(folder.path("cat"), folder.path(link));
  std::filesystem::create_directory_symlink("..", folder.path("dog/set"));
  EXPECT_EQ(open_source({.path = folder.path(), .val_share = 0}, Split::train)->size(), 3);
}

TEST(ImageFolder, AHeldOutPathHasTheClassesOfTheTrainingPath) {
  const TemporaryFolder folder;
  folder.write("mine/b/1.jpg", "x");
  folder.write("mine/a/1.jpg", "x");
  folder.write("theirs/val/b/1.jpg", "x");
  folder.write("theirs/val/a/1.jpg", "y");
  SourceConfig config = {.path = folder.path("mine"), .val_path = folder.path("theirs/val")};
  EXPECT_EQ(open_source(config, Split::train)->size(), 2);
  EXPECT_EQ(open_source(config, Split::validation)->size(), 2);
  config.val_path = folder.path("theirs");
  EXPECT_EQ(open_source(config, Split::validation)->read(0).name, folder.path("theirs/val/a/1.jpg"));
  config.path = folder.write("t.csv", "1.jpg,b\n2.jpg,c\n");
  EXPECT_EQ(open_source_with_problems(config, Split::validation)->problems().size(), 1u);
  EXPECT_EQ(
      error_of([&] { open_source({.path = folder.path("theirs")}, Split::train); }, &folder),
      "DIR/theirs has DIR/theirs/val but no train folder: give DIR/theirs/val as the data to train on it");
}

TEST(ImageFolder, TheFingerprintSeesContentThatChanges) {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", "x");
  folder.write("b/1.jpg", "x");
  const SourceConfig config = {.path = folder.path(), .val_share = 0};
  const auto print = [&] { return open_source(config, Split::train)->fingerprint(); };
  const uint64_t before = print();
  EXPECT_EQ(before, print());
  folder.write("b/1.jpg", "xy");
  const uint64_t longer = print();
  EXPECT_NE(before, longer);
  folder.write("b/2.jpg", "x");
  EXPECT_NE(longer, print());
}

// --- CSV ---

TEST(Csv, FollowsRfc4180) {
  const auto rows =
      parse_csv("\xEF\xBB\xBFpath,label\r\n\"a,\"\"b\"\".jpg\",\"two\nlines\"\r\n\r\nc,\n,d", ',', "f");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].fields, (std::vector<std::string>{"path", "label"}));
  EXPECT_EQ(rows[1].fields, (std::vector<std::string>{"a,\"b\".jpg", "two\nlines"}));
  EXPECT_EQ(rows[2].fields, (std::vector<std::string>{"c", ""}));
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_EQ(rows[3].fields, (std::vector<std::string>{"", "d"}));
  EXPECT_EQ(parse_csv("a\tb,c\n", '\t', "f")[0].fields, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_TRUE(parse_csv("", ',', "f").empty());
}

TEST(Csv, BrokenQuotesAreNamedWithTheirLine) {
  const auto parse = [](const char* text) { return error_of([&] { parse_csv(text, ',', "f.csv"); }); };
  EXPECT_EQ(parse("a,b\nc,\"d\n\ne"), "f.csv line 2: a quote that is never closed");
  EXPECT_EQ(parse("a,b\"c\""), "f.csv line 1: a quote inside a field; put the whole field in quotes");
  EXPECT_EQ(parse("a\n\"b\"c"), "f.csv line 2: text after a closing quote");
}

}  // namespace
}  // namespace tessera::data
