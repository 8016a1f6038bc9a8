#include "parallel/world.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::parallel {
namespace {

TEST(Gpus, EachProcessOfAMachineTakesTheOneOfItsNumber) {
  for (const int gpus : {4, 8})
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(gpu_of(rank, 4, gpus), rank);
}

TEST(Gpus, TheOnlyOneIsTheProcessOwnWhereALauncherShowsEachItsOwn) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(gpu_of(rank, 4, 1), 0);
}

TEST(Gpus, TooFewAreNone) {
  EXPECT_EQ(gpu_of(0, 4, 0), -1);
  EXPECT_EQ(gpu_of(0, 1, 0), -1);
  EXPECT_EQ(gpu_of(0, 4, 3), -1);
}

TEST(Gpus, AllProcessesNeedOneOfTheirOwn) {
  const auto why = [](const std::vector<std::string>& names) { return why_no_gpu_each(names); };
  EXPECT_EQ(why({"a", "b", "c"}), "");
  EXPECT_EQ(why({"a", "", "c"}), "process 1 of 3 has no GPU to itself");
  EXPECT_EQ(why({"a", "b", "a"}), "processes 0 and 2 of 3 have the same GPU");
}

}  // namespace
}  // namespace tessera::parallel
