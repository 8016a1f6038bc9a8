#include "data/base/chosen_samples.h"

#include <gtest/gtest.h>

namespace tessera::data {
namespace {

TEST(ChosenSamples, AreThoseOfTheWholeInTheirOrder) {
  const std::shared_ptr<const Source> whole =
      open_source({.path = "shapes:train=8,val=6"}, Split::validation);
  const ChosenSamples chosen(whole, {4, 1}, "two of them");
  ASSERT_EQ(chosen.size(), 2);
  EXPECT_EQ(chosen.read(0).name, whole->read(4).name);
  EXPECT_EQ(chosen.label(1), whole->class_labels()->label(1));
  EXPECT_EQ(chosen.index_in_whole(1), 1);
  EXPECT_EQ(chosen.class_names(), whole->class_labels()->class_names());
  EXPECT_EQ(chosen.describe(), "two of them");
  EXPECT_NE(chosen.fingerprint(), whole->fingerprint());
  EXPECT_NE(chosen.fingerprint(), ChosenSamples(whole, {1, 4}, "two of them").fingerprint());
  EXPECT_THROW(chosen.read(2), std::out_of_range);
}

TEST(FirstSamples, AreTheBeginningOfTheWhole) {
  const std::shared_ptr<const Source> whole =
      open_source({.path = "shapes:train=8,val=6"}, Split::validation);
  const FirstSamples first(whole, 4);
  ASSERT_EQ(first.size(), 4);
  EXPECT_EQ(first.read(3).name, whole->read(3).name);
  EXPECT_EQ(first.class_labels(), whole->class_labels());
  EXPECT_NE(first.fingerprint(), whole->fingerprint());
  EXPECT_EQ(FirstSamples(whole, 60).size(), 6);
}

}  // namespace
}  // namespace tessera::data
