#include "data/base/class_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/text.h"
#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

TEST(ImageNetClassNames, AreThoseOfThePublishedHeads) {
  const ImageNetClasses* small = imagenet_classes(1000);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->synsets[0], "n01440764");
  EXPECT_EQ(small->names[0], "tench, Tinca tinca");
  EXPECT_EQ(small->names[207], "golden retriever");
  EXPECT_EQ(small->names[850], "teddy, teddy bear");
  EXPECT_EQ(small->synsets[999], "n15075141");
  EXPECT_EQ(imagenet_classes(10), nullptr);
  for (const int64_t count : {1000, 11221, 21841, 21843}) {
    const ImageNetClasses* list = imagenet_classes(count);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(std::ssize(list->names), count);
    EXPECT_EQ(std::ssize(list->synsets), count);
    EXPECT_TRUE(std::is_sorted(list->synsets.begin(), list->synsets.end()));
    // A class list with a repeated name could not be written and read back.
    EXPECT_EQ(std::set(list->names.begin(), list->names.end()).size(), list->names.size());
  }
}

TEST(ClassNames, ListsOfOtherPrograms) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {"tench, Tinca", "goldfish", "cook's pet"};
  const std::pair<const char*, const char*> lists[] = {
      {"python.txt", "{0: 'tench, Tinca',\n 1: 'goldfish',\n 2: \"cook's pet\"}"},
      {"escaped.txt", "{0: 'tench, Tinca', 1: 'goldfish', 2: 'cook\\'s pet'}"},
      {"list.txt", "['tench, Tinca', 'goldfish', \"cook's pet\"]"},
      {"config.json", R"({"a": [1], "id2label": {"0": "tench, Tinca", "1": "goldfish", "2": "cook's pet"}})"},
      {"coco.json",
       R"([{"id": 1, "name": "goldfish"}, {"id": 0, "name": "tench, Tinca"}, {"id": 2, "name": "cook's pet"}])"},
      {"titled.csv", "id,name\n0,\"tench, Tinca\"\n2,cook's pet\n1,goldfish\n"},
      {"names.csv", "class_name\n\"tench, Tinca\"\ngoldfish\ncook's pet\n"},
      {"counted.txt", "1 tench, Tinca\n2 goldfish\n3 cook's pet\n"},
      {"places.txt", "tench, Tinca 0\ngoldfish 1\ncook's pet 2\n"},
      {"commas.txt", "tench, Tinca, 0\ngoldfish, 1\ncook's pet, 2\n"},
      {"colons.txt", "tench, Tinca: 0\ngoldfish: 1\ncook's pet: 2\n"},
      {"signs.txt", "tench, Tinca = 0\ngoldfish = 1\ncook's pet = 2\n"},
      {"equal.txt", "tench, Tinca=0\ngoldfish=1\ncook's pet=2\n"},
      {"quoted.txt", "\"tench, Tinca\"\n\"goldfish\"\n\"cook's pet\"\n"},
      {"comment.txt", "# three classes\ntench, Tinca\ngoldfish\ncook's pet\n"}};
  for (const auto& [file, content] : lists)
    EXPECT_EQ(read_class_names(folder.write(file, content)), names) << file;
  // Numbers without which two names would be equal are part of them.
  for (const char* kept : {"1 star\n2 stars\n3 stars", "level 0\nlevel 1\nlevel 2"})
    EXPECT_EQ(read_class_names(folder.write("kept.txt", kept)), split(kept, '\n'));
  EXPECT_EQ(error_of([&] { read_class_names(folder.write("t.csv", "id,name\n0,a\n0,b\n")); }, &folder),
            "DIR/t.csv line 3: '0' is no number of a class, or repeats one");
  EXPECT_EQ(error_of([&] { read_class_names(folder.write("t.csv", "id,name\n0,a\n1,b\n6,c\n")); }, &folder),
            "DIR/t.csv has 3 names for the classes 0 to 6, must name at least half of the numbers");
}

TEST(ClassNames, LabelMapsAndYaml) {
  const TemporaryFolder folder;
  const auto read = [&](const char* name, const char* content) {
    return read_class_names(folder.write(name, content));
  };
  const std::vector<std::string> both = {"cat", "big dog"};
  EXPECT_EQ(read("map.pbtxt", "item {\n  id: 2\n  name: 'big dog'\n}\nitem {\n  name: \"cat\"\n  id: 1\n}\n"),
            both);
  EXPECT_EQ(
      read("map.txt", "item { id: 1 name: 'n01' display_name: 'cat' }\nitem { id: 2 name: 'big dog' }\n"),
      both);
  EXPECT_EQ(read("a.yaml", "nc: 2\nnames: [cat, 'big dog']  # two\ntrain: x\n"), both);
  EXPECT_EQ(read("b.yaml", "names:\n  0: cat  # small\n  1: 'big dog'\ntrain: x\n"), both);
  EXPECT_EQ(read("c.yml", "train: x\nnames:\n- cat\n- big dog\nval: y\n"), both);
  EXPECT_EQ(read("d.yaml", "names: {0: cat, 1: big dog}\n"), both);
  EXPECT_EQ(read("labelmap.txt", "# label:color_rgb:parts:actions\ncat:128,0,0::\nbig dog:0,128,0::\n"),
            both);
  EXPECT_EQ(read("e.yaml", "names: [\"red, round\", stop]\n"),
            (std::vector<std::string>{"red, round", "stop"}));
  EXPECT_EQ(error_of([&] { read("f.yaml", "train: x\n"); }, &folder),
            "DIR/f.yaml has no 'names', the list of classes");
}

TEST(ClassNames, NumbersWithGapsHaveUnusedClasses) {
  const TemporaryFolder folder;
  const std::vector<std::string> gap = {"cat", "unused 2", "dog"};
  for (const auto& [name, content] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a.pbtxt", "item { id: 1 name: 'cat' }\nitem { id: 3 name: 'dog' }\n"},
           {"a.json", R"({"1": "cat", "3": "dog"})"},
           {"b.json", R"([{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}])"},
           {"a.csv", "id,name\n1,cat\n3,dog\n"},
           {"a.yaml", "names:\n  1: cat\n  3: dog\n"}})
    EXPECT_EQ(read_class_names(folder.write(name, content)), gap) << content;
  EXPECT_EQ(
      error_of([&] { read_class_names(folder.write("e.pbtxt", "item { id: 2 name: 'cat' }\n")); }, &folder),
      "DIR/e.pbtxt numbers its classes from 2 ('cat'), must count from 0 or 1");
}

TEST(ClassNames, QuotesAroundNamesWithCommasAreNoPartOfThem) {
  const TemporaryFolder folder;
  const auto read = [&](const char* content) { return read_class_names(folder.write("names.txt", content)); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(read("cat\n\"shark, white\"\n"), (Names{"cat", "shark, white"}));
  EXPECT_EQ(read("0: 'tench, Tinca tinca',\n1: 'goldfish'\n"), (Names{"tench, Tinca tinca", "goldfish"}));
  EXPECT_EQ(read("\"big\" dog\nO'Brien's cat\na, b\n"), (Names{"\"big\" dog", "O'Brien's cat", "a, b"}));
  EXPECT_EQ(read("\"dog\"\ncat, small\n"), (Names{"\"dog\"", "cat, small"}));
}

TEST(ImageNetClassNames, TheTwoCranesAreToldApart) {
  const std::vector<std::string>& names = imagenet_classes(1000)->names;
  EXPECT_EQ(names[134], "crane (n02012849)");
  EXPECT_EQ(names[517], "crane (n03126707)");
}

TEST(ImageNetClassNames, SynsetsAreSpokenByTheirFirstWords) {
  EXPECT_EQ(spoken_names({"n01440764", "n01443537", "n04008634", "n03773504"}),
            (std::vector<std::string>{"tench", "goldfish", "projectile", "missile"}));
  EXPECT_EQ(spoken_names({"n02012849", "n03126707", "n01440764"}),
            (std::vector<std::string>{"crane (n02012849)", "crane (n03126707)", "tench"}));
  EXPECT_EQ(spoken_names({"cat", "n99999999"}), (std::vector<std::string>{"cat", "n99999999"}));
  EXPECT_EQ(spoken_names({"tench, Tinca tinca", "cats, dogs", "red_star"}),
            (std::vector<std::string>{"tench", "cats, dogs", "red star"}));
  EXPECT_EQ(spoken_names({"a_b", "a b"}), (std::vector<std::string>{"a_b", "a b"}));
  const std::vector<std::string> all = spoken_names(imagenet_classes(1000)->synsets);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 1000u);
}

TEST(ImageNetClassNames, FoldersOfSynsetsAreTheSameClasses) {
  const ImageNetClasses& known = *imagenet_classes(1000);
  EXPECT_TRUE(same_classes(known.names, known.synsets));
  EXPECT_TRUE(same_classes(known.synsets, known.names));
  std::vector<std::string> other = known.synsets;
  std::swap(other[3], other[4]);
  EXPECT_FALSE(same_classes(known.names, other));
  EXPECT_TRUE(same_classes({"a"}, {"a"}));
  EXPECT_FALSE(same_classes({"a"}, {"b"}));
}

}  // namespace
}  // namespace tessera::data
