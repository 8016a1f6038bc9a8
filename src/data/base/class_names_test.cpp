#include "data/base/class_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
