#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tessera {
namespace {

// The known answers of the generator's reference implementation.
TEST(Random, PhiloxGivesItsKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// A run must repeat its old draws: these numbers may never change.
TEST(Random, AStreamIsFrozen) {
  RandomStream stream(7, "crop", 2, 3);
  const std::vector<uint32_t> first = {stream.next_u32(), stream.next_u32(), stream.next_u32(),
                                       stream.next_u32(), stream.next_u32()};
  EXPECT_EQ(first, (std::vector<uint32_t>{2627285713, 2295347639, 882376315, 118912201, 2935043719}));
  EXPECT_EQ(RandomStream(7, "shuffle").permutation(8), (std::vector<int64_t>{1, 2, 5, 6, 3, 4, 7, 0}));
}

TEST(Random, EveryPartOfTheKeyMatters) {
  std::set<uint64_t> seen;
  int streams = 0;
  for (const uint64_t seed : {0ull, 1ull, 2ull, 1ull << 63})
    for (const char* purpose : {"", "crop", "crop2", "drop_path"})
      for (uint64_t a = 0; a < 20; ++a)
        for (uint64_t b = 0; b < 20; ++b, ++streams)
          seen.insert(RandomStream(seed, purpose, a, b).next_u64());
  EXPECT_EQ(static_cast<int>(seen.size()), streams);
  EXPECT_EQ(RandomStream(1, "x", 2, 3).next_u64(), RandomStream(1, "x", 2, 3).next_u64());
}

// Streams of neighbouring samples, as augmentation uses, look independent; so does each bit.
TEST(Random, NeighbouringStreamsAreUncorrelated) {
  constexpr int n = 20000;
  double sum = 0, squares = 0, products = 0, previous = 0.5;
  for (int i = 0; i < n; ++i) {
    const double u = RandomStream(1, "crop", 0, static_cast<uint64_t>(i)).uniform();
    sum += u;
    squares += u * u;
    products += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  // Five standard errors each.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  EXPECT_NEAR(products / n, 0, 5 * (1.0 / 12) / std::sqrt(n));
}

TEST(Random, UniformFillsItsIntervalEvenly) {
  RandomStream stream(1, "uniform");
  constexpr int n = 200000, cells = 100;
  std::array<int, cells> counts{};
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<size_t>(u * cells)];
  }
  double chi = 0;
  for (const int count : counts) chi += std::pow(count - n / cells, 2) / (n / cells);
  EXPECT_LT(chi, 99 + 5 * std::sqrt(2 * 99));
  EXPECT_GT(chi, 99 - 5 * std::sqrt(2 * 99));
  for (int i = 0; i < 100; ++i) {
    const double u = stream.uniform(-3, -1);
    EXPECT_TRUE(u >= -3 && u < -1);
  }
}

TEST(Random, IntegersReachBothEnds) {
  RandomStream stream(1, "integer");
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(stream.integer(-2, 3));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(stream.integer(5, 5), 5);
  EXPECT_EQ(stream.below(1), 0u);
  constexpr int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  int negative = 0;
  for (int i = 0; i < 1000; ++i) negative += stream.integer(low, high) < 0;
  EXPECT_NEAR(negative, 500, 5 * std::sqrt(250));
  EXPECT_GE(stream.integer(high - 1, high), high - 1);
  // A bound near 2^64: a plain remainder would yield the lower half twice as often.
  const uint64_t bound = 3ull << 62;
  int lower = 0;
  for (int i = 0; i < 3000; ++i) lower += stream.below(bound) < bound / 3;
  EXPECT_NEAR(lower, 1000, 5 * std::sqrt(3000 * 2.0 / 9));
}

// Mean and variance of each distribution within five standard errors.
TEST(Random, DistributionsHaveTheirMoments) {
  RandomStream stream(1, "moments");
  constexpr int n = 100000;
  const auto expect = [&](const char* name, double mean, double variance, double fourth, auto draw) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; ++i) {
      const double x = draw();
      sum += x;
      squares += (x - mean) * (x - mean);
    }
    EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n)) << name;
    // `fourth`: the fourth central moment over the squared variance.
    EXPECT_NEAR(squares / n, variance, 5 * variance * std::sqrt((fourth - 1) / n)) << name;
  };
  expect("normal", 0, 1, 3, [&] { return stream.normal(); });
  for (const double shape : {0.3, 1.0, 2.5})
    expect("gamma", shape, shape, 3 + 6 / shape, [&] { return stream.gamma(shape); });
  expect("beta(0.8, 0.8)", 0.5, 0.25 / 2.6, 3, [&] { return stream.beta(0.8, 0.8); });  // fourth: below 3
  expect("beta(2, 1)", 2.0 / 3, 1.0 / 18, 3, [&] { return stream.beta(2, 1); });
  expect("chance", 0.3, 0.21, 3, [&] { return stream.chance(0.3) ? 1.0 : 0.0; });
}

TEST(Random, APermutationHoldsEachNumberOnceAndEachOrderIsAsLikely) {
  auto order = RandomStream(3, "shuffle").permutation(1000);
  EXPECT_NE(order, RandomStream(4, "shuffle").permutation(1000));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_TRUE(RandomStream(3, "shuffle").permutation(0).empty());
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t i = 0; i < 6000; ++i) ++counts[RandomStream(3, "shuffle", i).permutation(3)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [permutation, count] : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(6000 * 5.0 / 36));
}

}  // namespace
}  // namespace tessera
