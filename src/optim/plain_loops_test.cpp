#include "optim/plain_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"

namespace tessera::train::plain {
namespace {

std::vector<float> normal(int64_t n, uint64_t seed) {
  RandomStream stream(seed, "plain_loops_test");
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(stream.normal());
  return values;
}

TEST(PlainLoops, BlocksCoverEveryElementOnce) {
  const std::vector<int64_t> sizes = {0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 0, 100000};
  std::vector<int64_t> next(sizes.size(), 0);
  for (const Block& block : cut_into_blocks(sizes)) {
    EXPECT_EQ(block.begin, next[block.tensor]);
    EXPECT_LT(block.begin, block.end);
    next[block.tensor] = block.end;
  }
  EXPECT_EQ(next, sizes);
}

TEST(PlainLoops, SumsAndLargestMatchTheDefinitionAroundTheVectorWidth) {
  for (const int64_t n : {0, 1, 7, 15, 16, 17, 31, 33, 1000}) {
    const auto x = normal(n, 1);
    double squares = 0, magnitudes = 0, largest = 0;
    for (const float v : x) {
      squares += static_cast<double>(v) * static_cast<double>(v);
      magnitudes += std::fabs(static_cast<double>(v));
      largest = std::max(largest, std::fabs(static_cast<double>(v)));
    }
    EXPECT_NEAR(sum_of_squares(x.data(), n), squares, 1e-13 * squares) << n;
    EXPECT_NEAR(sum_of_magnitudes(x.data(), n), magnitudes, 1e-13 * magnitudes) << n;
    EXPECT_EQ(static_cast<double>(largest_magnitude(x.data(), n)), largest) << n;
  }
}

TEST(PlainLoops, NotANumberIsNeverHidden) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const int64_t at : {0, 5, 18, 36}) {
    auto x = normal(37, 2);
    x[static_cast<size_t>((at + 3) % 37)] = -inf;
    EXPECT_EQ(largest_magnitude(x.data(), 37), inf);
    x[static_cast<size_t>(at)] = nan;
    EXPECT_TRUE(std::isnan(largest_magnitude(x.data(), 37))) << at;
    EXPECT_TRUE(std::isnan(sum_of_squares(x.data(), 37))) << at;
  }
}

// Splitting a range anywhere must not change a bit: threads split at any place.
TEST(PlainLoops, ElementwiseLoopsGiveTheSameBitsHoweverTheRangeIsCut) {
  constexpr int64_t n = 101;
  const auto g = normal(n, 3);
  const Adam constants = {0.7f, 0.01f, 0.999f, 0.9f, 0.1f, 0.99f, 0.01f, 0.02f, 0.5f, 1e-6f};
  auto p = normal(n, 4), m = normal(n, 5), v = std::vector<float>(n, 0.3f);
  auto cut_p = p, cut_m = m, cut_v = v;
  adam(p.data(), g.data(), m.data(), v.data(), n, constants);
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 50}, {50, 101}})
    adam(cut_p.data() + begin, g.data() + begin, cut_m.data() + begin, cut_v.data() + begin, end - begin,
         constants);
  EXPECT_EQ(p, cut_p);
  EXPECT_EQ(m, cut_m);
  EXPECT_EQ(v, cut_v);
}

TEST(PlainLoops, EveryBlockRunsOnce) {
  for (const int64_t size : {10, 1 << 20}) {
    const auto blocks = cut_into_blocks(std::vector<int64_t>{size, 3, size});
    std::vector<int> runs(blocks.size(), 0);
    for_each_block(blocks, [&](size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(blocks.size(), 1));
  }
}

}  // namespace
}  // namespace tessera::train::plain
