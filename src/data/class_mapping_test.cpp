#include "data/class_mapping.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/class_names.h"

namespace tessera::data {
namespace {

using Names = std::vector<std::string>;
using Places = std::vector<int64_t>;

TEST(ClassMapping, FindsClassesByNameInAnyOrder) {
  const ClassMapping same = map_classes({"cat", "dog"}, 2, {"cat", "dog"}, "set");
  EXPECT_EQ(same.model_class, (Places{0, 1}));
  EXPECT_EQ(same.how, "the same classes");
  const ClassMapping some = map_classes({"cat", "dog", "emu"}, 3, {"emu", "cat"}, "set");
  EXPECT_EQ(some.model_class, (Places{2, 0}));
  EXPECT_EQ(some.how, "by name");
}

// ImageNet-A and -R have folders of 200 synsets, V2 has numbers of classes.
TEST(ClassMapping, KnowsTheLayoutsOfImageNet) {
  const Names& names = imagenet_classes(1000)->names;
  const ClassMapping synsets = map_classes(names, 1000, {"n01443537", "n15075141"}, "set");
  EXPECT_EQ(synsets.model_class, (Places{1, 999}));
  EXPECT_EQ(synsets.how, "by synset");
  const ClassMapping numbers = map_classes(names, 1000, {"0", "10", "2"}, "set");
  EXPECT_EQ(numbers.model_class, (Places{0, 10, 2}));
  EXPECT_EQ(numbers.how, "by number");
}

TEST(ClassMapping, TakesTheOrderWhereTheModelNamesNothing) {
  EXPECT_EQ(map_classes({}, 2, {"cat", "dog"}, "set").how, "in their order");
  EXPECT_THROW(map_classes({}, 3, {"cat", "dog"}, "set"), Error);
}

TEST(ClassMapping, SaysWhichClassIsUnknownAndWhatWouldFit) {
  try {
    map_classes({"cat", "dog"}, 2, {"cat", "dogs"}, "set");
    FAIL() << "a class that the model has not must be refused";
  } catch (const Error& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find("'dogs'"), std::string::npos) << words;
    EXPECT_NE(words.find("did you mean 'dog'"), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace tessera::data
