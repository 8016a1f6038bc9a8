#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/source.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "io/files/tar.h"

namespace tessera::data {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

std::string write_shard(const TemporaryFolder& folder, const std::string& name, const Members& members) {
  TarWriter writer(folder.path(name));
  for (const auto& [member, content] : members) writer.add(member, content);
  writer.commit();
  return folder.path(name);
}

std::string content_of(const Source& source, int64_t index) {
  const RawSample sample = source.read(index);
  const auto& bytes = std::get<std::vector<std::byte>>(sample.picture);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> contents_of(const Source& source) {
  std::vector<std::string> contents;
  for (int64_t i = 0; i < source.size(); ++i) contents.push_back(content_of(source, i));
  return contents;
}

// Returns the problems, with the folder replaced by DIR.
std::vector<std::string> problems_of(const SourceConfig& config, Split split, const TemporaryFolder& folder) {
  std::vector<std::string> lines;
  for (const std::string& line : open_source_with_problems(config, split)->problems())
    lines.push_back(error_of([&] { fail(line); }, &folder));
  return lines;
}

TEST(ExpandBraces, RangesAndLists) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(expand_braces("a.tar"), Paths{"a.tar"});
  EXPECT_EQ(expand_braces("t-{008..011}.tar"), (Paths{"t-008.tar", "t-009.tar", "t-010.tar", "t-011.tar"}));
  EXPECT_EQ(expand_braces("{a,b}-{0..1}"), (Paths{"a-0", "a-1", "b-0", "b-1"}));
  EXPECT_EQ(error_of([] { expand_braces("t-{0..4.tar"); }), "t-{0..4.tar: '{' has no '}'");
  EXPECT_NE(error_of([] { expand_braces("t-{4..0}.tar"); }).find("must be a range"), std::string::npos);
  EXPECT_NE(error_of([] { expand_braces("{0..99999}{0..99999}"); }).find("more than 100000 paths"),
            std::string::npos);
  EXPECT_NE(error_of([] { expand_braces("{0..99999999999}"); }).find("must be a range"), std::string::npos);
}

// Counts unnamed files mapped by this process: decompressed archives.
int64_t unpacked_archives() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.ends_with(" (deleted)");
  return count;
}

TEST(WebDataset, ShardsOfPicturesAlone) {
  const TemporaryFolder folder;
  write_shard(folder, "p-0.tar", {{"a.jpg", "A"}, {"b.jpg", "B"}});
  write_shard(folder, "p-1.tar", {{"c.jpg", "C"}});
  const SourceConfig config = {.path = folder.path("p-{0..1}.tar"), .val_share = 0};
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(source->class_labels(), nullptr);
  EXPECT_EQ(contents_of(*source), (std::vector<std::string>{"A", "B", "C"}));
  EXPECT_EQ(source->describe(), "WebDataset " + config.path + ", 2 shards, 3 images, no labels");
  // If another shard has labels, this one lacks them.
  write_shard(folder, "p-1.tar", {{"c.jpg", "C"}, {"c.cls", "0"}});
  EXPECT_EQ(problems_of(config, Split::train, folder),
            (std::vector<std::string>{"DIR/p-0.tar: a has an image but no .cls or .json",
                                      "DIR/p-0.tar: b has an image but no .cls or .json"}));
}

TEST(WebDataset, BothSplitsShareOneUnpackedArchive) {
  const TemporaryFolder folder;
  const auto shard = [&](const char* content) {
    Members members;
    for (int i = 0; i < 20; ++i) {
      members.emplace_back(text(i, ".jpg"), text(content, i));
      members.emplace_back(text(i, ".cls"), text(i % 2));
    }
    return write_shard(folder, "all.tar.gz", members);
  };
  const SourceConfig config = {.path = shard("old "), .val_share = 0.5};
  const int64_t before = unpacked_archives();
  const auto train = open_source(config, Split::train);
  EXPECT_EQ(unpacked_archives(), before + 1);
  const auto held_out = open_source(config, Split::validation);
  EXPECT_EQ(unpacked_archives(), before + 1);
  EXPECT_EQ(train->size() + held_out->size(), 20);
  shard("new ");  // another file of the same name
  EXPECT_EQ(content_of(*open_source(config, Split::train), 0).substr(0, 4), "new ");
  EXPECT_EQ(content_of(*train, 0).substr(0, 4), "old ");
}

TEST(WebDataset, ReadsPlainAndGzippedShardsInOrder) {
  const TemporaryFolder folder;
  folder.write("classes.txt", "cat\ndog\n\n");
  write_shard(folder, "train-08.tar.gz", {{"x/k1.jpg", "one"}, {"x/k1.cls", "1\n"}, {"x/k1.txt", "ignored"}});
  write_shard(folder, "train-09.tar.gz",
              {{"k2.json", R"({"label": "cat", "more": [1, {}]})"}, {"k2.PNG", "two"}});
  write_shard(folder, "train-10.tar.gz",
              {{"k0.webp", "three"}, {"k0.cls", "0"}, {"k0.seg.png", "not the picture"}});
  write_shard(folder, "held-out.tar", {{"k4.jpeg", "four"}, {"k4.cls", "1"}});
  const SourceConfig config = {.path = folder.path("train-{08..10}.tar.gz"),
                               .val_path = folder.path("held-out.tar")};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(contents_of(*train), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(labels_in(*train).label(0), 1);
  EXPECT_EQ(labels_in(*train).label(1), 0);
  EXPECT_EQ(labels_in(*train).label(2), 0);
  EXPECT_EQ(labels_in(*train).class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(train->read(0).name, folder.path("train-08.tar.gz") + ": x/k1.jpg");
  EXPECT_EQ(contents_of(*held_out), std::vector<std::string>{"four"});
  EXPECT_EQ(train->describe(), "WebDataset " + config.path + ", 3 shards, 3 images, 2 classes");
  EXPECT_NE(train->fingerprint(), held_out->fingerprint());
}

TEST(WebDataset, AFolderOfShardsHasTheSplitsThatTheNamesSay) {
  const TemporaryFolder folder;
  write_shard(folder, "train-0.tar", {{"a.jpg", "a"}, {"a.cls", "0"}, {"b.jpg", "b"}, {"b.cls", "1"}});
  write_shard(folder, "val-0.tar", {{"c.jpg", "c"}, {"c.cls", "0"}, {"d.jpg", "d"}, {"d.cls", "1"}});
  const SourceConfig config = {.path = folder.path()};
  EXPECT_EQ(contents_of(*open_source(config, Split::train)), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(contents_of(*open_source(config, Split::validation)), (std::vector<std::string>{"c", "d"}));
}

TEST(WebDataset, FoldersOfSplitsHoldShards) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val", "test"}) std::filesystem::create_directory(folder.path(split));
  write_shard(folder, "train/000.tar", {{"a.jpg", "A"}, {"a.cls", "0"}, {"b.jpg", "B"}, {"b.class", "1"}});
  write_shard(folder, "train/001.tar", {{"c.jpg", "C"}, {"c.label", "1"}});
  write_shard(folder, "val/000.tar", {{"d.jpg", "D"}, {"d.cls", "1"}});
  write_shard(folder, "test/000.tar", {{"e.jpg", "E"}, {"e.cls", "0"}});
  const auto train = open_source({.path = folder.path()}, Split::train),
             held_out = open_source({.path = folder.path()}, Split::validation);
  EXPECT_EQ(source_kind(folder.path()), "WebDataset");
  EXPECT_EQ(contents_of(*train), (std::vector<std::string>{"A", "B", "C"}));
  EXPECT_EQ(labels_of(*train), (std::vector<int64_t>{0, 1, 1}));
  EXPECT_EQ(contents_of(*held_out), std::vector<std::string>{"D"});
  // Archives among class folders are none.
  folder.write("train/cat/1.jpg", "x"), folder.write("val/cat/2.jpg", "x"),
      folder.write("test/cat/3.jpg", "x");
  EXPECT_EQ(source_kind(folder.path()), "ImageFolder");
}

TEST(WebDataset, AnArchiveNextToTheImagesOfASplitIsNoShard) {
  const TemporaryFolder folder;
  folder.write("train/1.jpg", "x"), folder.write("val/2.jpg", "x");
  write_shard(folder, "train/images.tar", {{"a.jpg", "A"}});
  EXPECT_EQ(source_kind(folder.path()), "ImageFolder");
}

TEST(WebDataset, HeldOutShardsAreNeverTrainedOn) {
  const TemporaryFolder folder;
  write_shard(folder, "shard-0.tar", {{"a.jpg", "one"}, {"a.cls", "0"}, {"b.jpg", "two"}, {"b.cls", "1"}});
  write_shard(folder, "val-0.tar", {{"c.jpg", "three"}, {"c.cls", "1"}});
  const SourceConfig config = {.path = folder.path()};
  EXPECT_EQ(contents_of(*open_source(config, Split::train)), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(contents_of(*open_source(config, Split::validation)), std::vector<std::string>{"three"});
  std::filesystem::remove(folder.path("shard-0.tar"));
  EXPECT_EQ(error_of([&] { open_source(config, Split::train); }, &folder),
            "DIR has shards for validation (val-0.tar) but none to train on");
}

TEST(WebDataset, ShardsWithoutASplitAreSharedOut) {
  const TemporaryFolder folder;
  Members members;
  for (int i = 0; i < 40; ++i) {
    members.emplace_back("k" + std::to_string(i) + ".jpg", std::to_string(i));
    members.emplace_back("k" + std::to_string(i) + ".cls", std::to_string(i % 2));
  }
  const SourceConfig config = {.path = write_shard(folder, "all.tar", members), .val_share = 0.2};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(class_counts(*train), (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(class_counts(*held_out), (std::vector<int64_t>{4, 4}));
  std::set<std::string> all;
  for (const auto* source : {train.get(), held_out.get()})
    for (const std::string& content : contents_of(*source)) all.insert(content);
  EXPECT_EQ(all.size(), 40u);
}

TEST(WebDataset, NumbersFollowAListThatCountsFromOne) {
  const TemporaryFolder folder;
  write_shard(folder, "train.tar", {{"a.jpg", "a"}, {"a.cls", "1"}, {"b.jpg", "b"}, {"b.cls", "2"}});
  const SourceConfig config = {.path = folder.path("train.tar"),
                               .val_share = 0,
                               .class_names = folder.write("n.json", R"({"1": "cat", "2": "dog"})")};
  EXPECT_EQ(labels_of(*open_source(config, Split::train)), (std::vector<int64_t>{0, 1}));
  write_shard(folder, "train.tar", {{"a.jpg", "a"}, {"a.cls", "1"}, {"b.jpg", "b"}, {"b.cls", "3"}});
  EXPECT_EQ(problems_of(config, Split::train, folder).at(0), "DIR/train.tar: b has label 3, must be 1 to 2");
}

TEST(WebDataset, WithoutNamesTheTrainingShardsCountTheClasses) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("a"));
  write_shard(folder, "a/train.tar", {{"a.jpg", "a"}, {"a.cls", "0"}, {"b.jpg", "b"}, {"b.cls", "2"}});
  std::filesystem::create_directories(folder.path("b"));
  write_shard(folder, "b/test.tar", {{"c.jpg", "c"}, {"c.cls", "1"}, {"d.jpg", "d"}, {"d.cls", "3"}});
  const SourceConfig config = {.path = folder.path("a/train.tar"), .val_path = folder.path("b/test.tar")};
  EXPECT_EQ(labels_in(*open_source(config, Split::train)).class_names(),
            (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(error_of([&] { open_source(config, Split::validation); }, &folder),
            "DIR/b/test.tar: d has label 3, must be 0 to 2");
  // A training set without classes provides none.
  write_shard(folder, "a/alone.tar", {{"a.jpg", "a"}});
  EXPECT_EQ(
      labels_in(*open_source({.path = folder.path("a/alone.tar"), .val_path = folder.path("b/test.tar")},
                             Split::validation))
          .class_names(),
      (std::vector<std::string>{"0", "1", "2", "3"}));
  std::filesystem::remove(folder.path("a/alone.tar"));
  // Held-out shards in the same folder need not contain every class.
  write_shard(folder, "a/val.tar", {{"e.jpg", "e"}, {"e.cls", "0"}});
  const SourceConfig beside = {.path = folder.path("a")};
  EXPECT_EQ(labels_in(*open_source(beside, Split::validation)).class_names(),
            (std::vector<std::string>{"0", "1", "2"}));
}

TEST(WebDataset, NamesWithoutAListAreTheClasses) {
  using Names = std::vector<std::string>;
  using Labels = std::vector<int64_t>;
  const TemporaryFolder folder;
  write_shard(folder, "train-0.tar",
              {{"a.jpg", "a"}, {"a.cls", "owl\n"}, {"b.jpg", "b"}, {"b.json", R"({"label": "cat"})"}});
  write_shard(folder, "train-1.tar", {{"c.jpg", "c"}, {"c.cls", "dog"}, {"d.jpg", "d"}, {"d.cls", "cat"}});
  write_shard(folder, "val.tar", {{"e.jpg", "e"}, {"e.cls", "dog"}});
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"cat", "dog", "owl"}));
  EXPECT_EQ(class_counts(*train), (Labels{2, 1, 1}));
  EXPECT_EQ(labels_in(*train).label(0), 2);
  EXPECT_EQ(labels_in(*held_out).class_names(), (Names{"cat", "dog", "owl"}));
  EXPECT_EQ(labels_in(*held_out).label(0), 1);
  write_shard(folder, "val.tar", {{"e.jpg", "e"}, {"e.cls", "dogg"}});
  EXPECT_EQ(problems_of(config, Split::validation, folder),
            Names{"DIR/val.tar: e.cls has label 'dogg', which is no class, did you mean 'dog'?"});
  // Numbers among names have no meaning.
  write_shard(folder, "train-1.tar", {{"c.jpg", "c"}, {"c.cls", "1"}, {"d.jpg", "d"}, {"d.cls", "cat"}});
  const auto problems = problems_of(config, Split::train, folder);
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0],
            "DIR/train-0.tar: a.cls has label 'owl', must be a whole number: no class names are given");
  const std::string several = write_shard(folder, "m.tar",
                                          {{"a.jpg", "a"},
                                           {"a.json", R"({"labels": ["b", "a"]})"},
                                           {"b.jpg", "b"},
                                           {"b.json", R"({"labels": ["a"]})"}});
  const auto multi = open_source({.path = several, .val_share = 0}, Split::train);
  EXPECT_EQ(labels_in(*multi).class_names(), (Names{"a", "b"}));
  EXPECT_EQ(labels_in(*multi).labels(0), (Labels{0, 1}));
}

TEST(WebDataset, UnequalLabelsOfASampleAreCounted) {
  const TemporaryFolder folder;
  Members members;
  const auto add = [&](const std::string& key, const char* number, const char* json) {
    members.insert(members.end(), {{key + ".jpg", key}, {key + ".cls", number}, {key + ".json", json}});
  };
  add("a", "1", R"({"label": 1})");
  add("b", "0", R"({"label": 1})");
  add("c", "0", R"({"labels": [0, 1]})");
  add("d", "1", R"({"label": "cat", "caption": "a cat"})");
  SourceConfig config{.path = write_shard(folder, "u.tar", members), .val_share = 0};
  const auto source = open_source(config, Split::train);
  EXPECT_EQ(labels_in(*source).label(1), 0);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(source->warnings()[0],
            config.path + ": 2 samples have another label in .json than in .cls, which counts (" +
                config.path + ": b.cls has 0, its .json 1)");
  // With names, a name can be compared with a number.
  config.class_names = folder.write("names.txt", "cat\ndog\n");
  const auto named = open_source(config, Split::train);
  ASSERT_EQ(named->warnings().size(), 1u);
  EXPECT_NE(named->warnings()[0].find("3 samples have another label"), std::string::npos);
}

TEST(WebDataset, NumbersWithAFractionOfZeroAreNumbers) {
  const TemporaryFolder folder;
  const std::string path =
      write_shard(folder, "f.tar", {{"a.jpg", "a"}, {"a.cls", "1.0"}, {"b.jpg", "b"}, {"b.cls", "0.0\n"}});
  const auto source = open_source({.path = path, .val_share = 0}, Split::train);
  EXPECT_EQ(labels_in(*source).class_names(), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(labels_in(*source).label(0), 1);
}

TEST(WebDataset, NamesNextToNumbersAreTheClasses) {
  using Names = std::vector<std::string>;
  const TemporaryFolder folder;
  write_shard(folder, "train-0.tar",
              {{"a.jpg", "a"},
               {"a.json", R"({"label": 2, "class_name": "bird"})"},
               {"b.jpg", "b"},
               {"b.json", R"({"label": 1, "class_name": "wolf"})"}});
  write_shard(folder, "val.tar", {{"c.jpg", "c"}, {"c.json", R"({"label": 2, "class_name": "bird"})"}});
  const SourceConfig config = {.path = folder.path()};
  const auto train = open_source(config, Split::train), held_out = open_source(config, Split::validation);
  EXPECT_EQ(labels_in(*train).class_names(), (Names{"wolf", "bird"}));
  EXPECT_EQ(labels_in(*train).label(0), 1);
  EXPECT_EQ(labels_in(*held_out).class_names(), (Names{"wolf", "bird"}));
  EXPECT_EQ(labels_in(*held_out).label(0), 1);
  write_shard(folder, "val.tar", {{"c.jpg", "c"}, {"c.json", R"({"label": 3, "class_name": "birb"})"}});
  EXPECT_EQ(problems_of(config, Split::validation, folder),
            Names{"DIR/val.tar: c.json has the class 'birb', which is no class, did you mean 'bird'?"});
  // If a number has two names, the numbers are the classes.
  write_shard(folder, "train-0.tar",
              {{"a.jpg", "a"},
               {"a.json", R"({"label": 0, "class_name": "bird"})"},
               {"b.jpg", "b"},
               {"b.json", R"({"label": 0, "class_name": "wolf"})"}});
  EXPECT_EQ(labels_in(*open_source(config, Split::train)).class_names(), Names{"0"});
}

TEST(WebDataset, FoldersInAnArchiveAreNoLabelsAndNamed) {
  const TemporaryFolder folder;
  const std::string path = write_shard(
      folder, "set.tar", {{"cat/a.jpg", "a"}, {"cat/b.jpg", "b"}, {"dog/c.jpg", "c"}, {"dog/d.jpg", "d"}});
  const auto source = open_source({.path = path, .val_share = 0}, Split::train);
  EXPECT_EQ(source->class_labels(), nullptr);
  ASSERT_EQ(source->warnings().size(), 1u);
  EXPECT_EQ(
      error_of([&] { fail(source->warnings()[0]); }, &folder),
      "DIR/set.tar: the folders cat, dog give no labels in shards; if they are classes, unpack the archive");
}

TEST(WebDataset, LabelsInOtherFilesAndForms) {
  using Labels = std::vector<int64_t>;
  const TemporaryFolder folder;
  const auto labels = [&](const Members& members) {
    const auto source =
        open_source({.path = write_shard(folder, "s.tar", members), .val_share = 0}, Split::train);
    Labels found;
    for (int64_t i = 0; source->class_labels() && i < source->size(); ++i)
      found.push_back(labels_in(*source).label(i));
    return found;
  };
  EXPECT_EQ(labels({{"a.jpg", "a"}, {"a.txt", "1\n"}, {"b.jpg", "b"}, {"b.txt", "0"}}), (Labels{1, 0}));
  EXPECT_EQ(labels({{"a.jpg", "a"}, {"a.txt", "1"}, {"b.jpg", "b"}, {"b.txt", "one dog"}}), Labels{});
  EXPECT_EQ(
      labels({{"a.jpg", "a"}, {"a.json", R"({"class": 1})"}, {"b.jpg", "b"}, {"b.json", R"({"class": 0})"}}),
      (Labels{1, 0}));
  EXPECT_EQ(labels({{"a.jpg", "a"}, {"a.cls", "1.0"}, {"b.jpg", "b"}, {"b.cls", "0"}}), (Labels{1, 0}));
  // Captions with another usual title among their keys have no labels.
  EXPECT_EQ(labels({{"a.jpg", "a"}, {"a.json", R"({"caption": "a dog", "category": "pets"})"}}), Labels{});
}

TEST(WebDataset, EveryProblemIsNamed) {
  const TemporaryFolder folder;
  folder.write("classes.txt", "cat\ndog\nbird\n");
  const SourceConfig config = {.path = write_shard(folder, "s.tar",
                                                   {{"lonely.jpg", "x"},
                                                    {"bare.cls", "1"},
                                                    {"twice.jpg", "x"},
                                                    {"twice.png", "y"},
                                                    {"twice.cls", "1"},
                                                    {"far.jpg", "x"},
                                                    {"far.cls", "12"},
                                                    {"minus.jpg", "x"},
                                                    {"minus.cls", "-1"},
                                                    {"word.jpg", "x"},
                                                    {"word.cls", "dgo"},
                                                    {"json.jpg", "x"},
                                                    {"json.json", "{\"labl\": 1}"},
                                                    {"broken.jpg", "x"},
                                                    {"broken.json", "{"},
                                                    {"several.jpg", "x"},
                                                    {"several.json", "{\"labels\": [0, 1]}"},
                                                    {"good.jpg", "x"},
                                                    {"good.cls", "0"}}),
                               .val_share = 0};
  const std::vector<std::string> expected = {
      "DIR/s.tar: 'twice' has two images",
      "DIR/s.tar: lonely has an image but no .cls or .json",
      "DIR/s.tar: bare has a label but no image (.jpg, .png, .webp, .gif, .bmp or .tiff)",
      "DIR/s.tar: minus.cls has label -1, must be 0 to the number of classes less one",
      "DIR/s.tar: word.cls has label 'dgo', which is no class, did you mean 'dog'?",
      "DIR/s.tar: json.json has neither 'label' nor 'labels'",
      "DIR/s.tar: broken.json is not JSON: it goes wrong at byte 2",
      "DIR/s.tar: several has a list of labels, unlike the samples before it",
      "DIR/s.tar: far has label 12, must be 0 to 2",
      "DIR/s.tar: class 2 ('bird') is empty: no image has it",
  };
  EXPECT_EQ(problems_of(config, Split::train, folder), expected);
  EXPECT_EQ(open_source_with_problems(config, Split::train)->size(), 2);
  EXPECT_EQ(error_of([&] { open_source(config, Split::train); }, &folder), expected[0] + " (and 9 more)");
}

TEST(WebDataset, ATruncatedShardIsNamedAndTheOthersAreStillRead) {
  const TemporaryFolder folder;
  write_shard(folder, "s-0.tar", {{"a.jpg", std::string(2000, 'x')}, {"a.cls", "0"}});
  write_shard(folder, "s-1.tar", {{"b.jpg", "b"}, {"b.cls", "0"}});
  std::filesystem::resize_file(folder.path("s-0.tar"), 1000);
  const SourceConfig config = {.path = folder.path("s-{0..2}.tar"), .val_share = 0};
  const auto problems = problems_of(config, Split::train, folder);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_NE(problems[0].find("DIR/s-0.tar"), std::string::npos) << problems[0];
  EXPECT_NE(problems[1].find("DIR/s-2.tar"), std::string::npos) << problems[1];
  EXPECT_EQ(open_source_with_problems(config, Split::train)->size(), 1);
}

TEST(WebDataset, OneKeyInTwoShardsIsTwoSamples) {
  const TemporaryFolder folder;
  for (const char* shard : {"s-0.tar", "s-1.tar"})
    write_shard(folder, shard, {{"a.jpg", shard}, {"a.cls", "0"}});
  const SourceConfig config = {.path = folder.path("s-{0..1}.tar"), .val_share = 0.5};
  EXPECT_EQ(open_source(config, Split::train)->size(), 1);
  EXPECT_EQ(open_source(config, Split::validation)->size(), 1);
}

TEST(WebDataset, SeveralLabelsASample) {
  const TemporaryFolder folder;
  folder.write("names.txt", "a\nb\nc\n");
  const SourceConfig config = {.path = write_shard(folder, "s.tar",
                                                   {{"1.jpg", "x"},
                                                    {"1.json", R"({"labels": ["c", 0, "c"]})"},
                                                    {"2.jpg", "x"},
                                                    {"2.json", R"({"labels": [1]})"},
                                                    {"3.jpg", "x"},
                                                    {"3.json", R"({"labels": []})"}}),
                               .val_share = 0,
                               .class_names = folder.path("names.txt")};
  const auto source = open_source(config, Split::train);
  EXPECT_TRUE(labels_in(*source).multi_label());
  EXPECT_EQ(labels_in(*source).label(0), -1);
  EXPECT_EQ(labels_in(*source).labels(0), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(labels_in(*source).labels(1), std::vector<int64_t>{1});
  EXPECT_TRUE(labels_in(*source).labels(2).empty());
  EXPECT_EQ(class_counts(*source), (std::vector<int64_t>{1, 1, 1}));
}

TEST(WebDataset, KeysMayHoldFullStops) {
  const TemporaryFolder folder;
  write_shard(folder, "a.tar",
              {{"v1.0.jpg", "a"},
               {"v1.0.cls", "0"},
               {"v1.1.jpg", "b"},
               {"v1.1.cls", "1"},
               {"c.jpg", "c"},
               {"c.cls", "1"},
               {"c.seg.png", "d"},
               {"._c.jpg", "x"}});
  const auto source = open_source({.path = folder.path("a.tar"), .val_share = 0}, Split::train);
  ASSERT_EQ(source->size(), 3);
  EXPECT_EQ(labels_in(*source).label(1), 1);
  EXPECT_EQ(source->read(2).name, folder.path("a.tar") + ": c.jpg");
}

TEST(WebDataset, JsonLabelsMayHaveAFraction) {
  const TemporaryFolder folder;
  write_shard(
      folder, "a.tar",
      {{"a.jpg", "a"}, {"a.json", R"({"label": 1.0})"}, {"b.jpg", "b"}, {"b.json", R"({"label": 0})"}});
  const auto source = open_source({.path = folder.path("a.tar"), .val_share = 0}, Split::train);
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(labels_in(*source).label(0), 1);
}

TEST(ClassNames, BrokenFilesAreNamed) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) {
    return error_of([&] { read_class_names(folder.write("c.txt", content)); }, &folder);
  };
  EXPECT_EQ(read("a\n\nb\n"), "DIR/c.txt line 2 is blank, must be a class name");
  EXPECT_EQ(read("a\na (0)\na\n"), "DIR/c.txt line 2 repeats the class 'a (0)'");
  for (const char* json :
       {"[\"tench\",\n\"goldfish, carp\"]\n", "{\"1\": \"goldfish, carp\", \"0\": \"tench\"}",
        "{\"0\": [\"n01440764\", \"tench\"], \"1\": [\"n01443537\", \"goldfish, carp\"]}",
        "{\"tench\": 0, \"goldfish, carp\": 1}"})
    EXPECT_EQ(read_class_names(folder.write("c.txt", json)),
              (std::vector<std::string>{"tench", "goldfish, carp"}))
        << json;
  EXPECT_EQ(
      read("{\"1\": \"a\", \"x\": \"b\"}"),
      "DIR/c.txt must be a list of class names, or an object with a name for each class number from 0 or 1");
  EXPECT_TRUE(read("{0: 'a',\n 1 'b'}\n").starts_with("DIR/c.txt is not JSON: it goes wrong at byte "));
  for (const char* numbered : {"0,tench\n1,goldfish, carp\n", "1: tench\n2: goldfish, carp\n",
                               "n01440764 tench\nn01443537 goldfish, carp\n"})
    EXPECT_EQ(read_class_names(folder.write("c.txt", numbered)),
              (std::vector<std::string>{"tench", "goldfish, carp"}));
  for (const char* kept : {"n01440764\nn01443537", "1 euro\n2 euro", "0,a\nb"})
    EXPECT_EQ(read_class_names(folder.write("c.txt", kept)), split(kept, '\n'));
  EXPECT_EQ(read_class_names(folder.write("c.txt",
                                          "\xEF\xBB\xBF"
                                          "a\nb\na\n")),
            (std::vector<std::string>{"a (0)", "b", "a (2)"}));
  EXPECT_EQ(read("\n"), "DIR/c.txt holds no class names");
  EXPECT_EQ(read("a\n\xff\n"), "DIR/c.txt is not UTF-8 text: save it as UTF-8");
  EXPECT_EQ(read_class_names(folder.write("c.txt", "a b\r\nc")), (std::vector<std::string>{"a b", "c"}));
}

}  // namespace
}  // namespace tessera::data
