#include <gtest/gtest.h>

#include "core/error.h"
#include "data/base/class_names.h"

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

// ImageNet-A and -R have 200 synset folders, V2 has class numbers.
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

std::string refusal(const Names& model, int64_t classes, const Names& set, bool in_order = false) {
  try {
    map_classes(model, classes, set, "set", in_order);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "a class that the model has not must be refused";
}

TEST(ClassMapping, SaysWhichClassIsUnknownAndWhatWouldFit) {
  EXPECT_EQ(
      refusal({"cat", "dog", "emu", "owl"}, 4, {"cat", "dogs"}),
      "set has the class 'dogs', which is none of the 4 of the weights (cat, dog, emu and 1 more), did "
      "you mean "
      "'dog'?: name the folders after the weights' classes, or after their numbers from 0; or train a head "
      "for these classes: tessera train RECIPE --pretrained WEIGHTS");
  // Several missing classes, each with a likely match despite its spelling; equally many classes may be taken
  // in order.
  EXPECT_EQ(
      refusal({"great white shark", "tench, Tinca tinca"}, 2, {"Great_White-Shark", "Tench"}),
      "set has the class 'Great_White-Shark' and 1 more, which are none of the 2 of the weights (great white "
      "shark, tench, Tinca tinca), did you mean 'great white shark' for 'Great_White-Shark', 'tench, Tinca "
      "tinca' for 'Tench'?: name the folders after the weights' classes, or after their numbers from 0; or, "
      "as "
      "both have 2, take them one for one by --classes-in-order; or train a head for these classes: tessera "
      "train "
      "RECIPE --pretrained WEIGHTS");
  EXPECT_NE(refusal({}, 0, {"cat"}).find("no classification head"), std::string::npos);
}

TEST(ClassMapping, SaysWhichWeightsKnowSynsets) {
  EXPECT_NE(refusal({"cat", "dog"}, 2, {"n01443537", "n15075141"})
                .find("ImageNet's synsets, which weights with 1000 classes use"),
            std::string::npos);
  // Weights trained on synset folders, and a set with words for them.
  EXPECT_NE(refusal({"n01440764", "n01443537"}, 2, {"tench"}).find("did you mean 'n01440764'?"),
            std::string::npos);
}

TEST(ClassMapping, TakesTheOrderWhereItIsAskedFor) {
  const ClassMapping mapping = map_classes({"cat", "dog"}, 2, {"Katze", "Hund"}, "set", true);
  EXPECT_EQ(mapping.model_class, (Places{0, 1}));
  EXPECT_EQ(mapping.how, "in their order");
  EXPECT_EQ(refusal({"cat", "dog"}, 2, {"Katze"}, true),
            "--classes-in-order: set has 1 class, the weights have 2");
}

}  // namespace
}  // namespace tessera::data
