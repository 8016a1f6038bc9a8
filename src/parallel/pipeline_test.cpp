#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tessera::parallel {
namespace {

std::vector<std::vector<torch::Tensor>> units_of(const std::vector<int64_t>& values) {
  std::vector<std::vector<torch::Tensor>> units;
  for (const int64_t count : values) units.push_back({torch::zeros({count})});
  return units;
}

TEST(Pipeline, EqualBlocksAreDividedEqually) {
  EXPECT_EQ(divide_units(units_of({5, 5, 5, 5, 5, 5}), 3), (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(divide_units(units_of({4, 4}), 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(divide_units(units_of({0, 0, 0}), 2), (std::vector<int>{0, 0, 1}));
}

// Ranges are in order and have a block at least. None has more than its equal share and the largest blocks.
TEST(Pipeline, BlocksOfAnySizeAreDividedIntoBalancedRanges) {
  std::mt19937 draw(7);
  for (int round = 0; round < 300; ++round) {
    const auto processes = static_cast<int>(1 + draw() % 6);
    std::vector<int64_t> values(static_cast<size_t>(processes) + draw() % 12);
    for (int64_t& count : values) count = static_cast<int64_t>(draw() % 50);
    const std::vector<int> places = divide_units(units_of(values), processes);
    ASSERT_EQ(places.size(), values.size());
    EXPECT_TRUE(std::ranges::is_sorted(places));
    std::vector<int64_t> sums(static_cast<size_t>(processes), 0), counts = sums;
    for (size_t i = 0; i < values.size(); ++i)
      sums.at(static_cast<size_t>(places[i])) += values[i], ++counts.at(static_cast<size_t>(places[i]));
    EXPECT_TRUE(std::ranges::none_of(counts, [](int64_t count) { return count == 0; }));
    // With few blocks each process takes one, even a large one.
    if (std::ssize(values) < 3 * processes) continue;
    const int64_t share = std::accumulate(values.begin(), values.end(), int64_t{0}) / processes;
    EXPECT_LE(std::ranges::max(sums), share + 2 * std::ranges::max(values) + 1);
  }
}

}  // namespace
}  // namespace tessera::parallel
