#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

TEST(BulkRandom, WordsArePhiloxBlocksOfADrawnKey) {
  RandomStream stream(3, "bulk"), same(3, "bulk");
  const uint64_t key = same.next_u64();
  const std::vector<uint32_t> words = bulk_words(stream, 131);
  ASSERT_EQ(words.size(), 131U);
  for (uint32_t i = 0; i < words.size(); ++i)
    EXPECT_EQ(words[i], philox4x32({i / 4, 0, 0, 0},
                                   {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)})[i % 4]);
}

TEST(BulkRandom, UniformNumbersFillTheirRangeEvenly) {
  RandomStream stream(4, "bulk");
  const std::vector<double> numbers = bulk_uniform(stream, 100'000, -1, 3);
  double sum = 0, squares = 0;
  for (const double x : numbers) {
    ASSERT_GE(x, -1);
    ASSERT_LT(x, 3);
    sum += x, squares += (x - 1) * (x - 1);
  }
  EXPECT_NEAR(sum / 1e5, 1, 0.02);
  EXPECT_NEAR(squares / 1e5, 16.0 / 12, 0.02);
}

TEST(BulkRandom, UniformNumbersAreTheWords) {
  RandomStream stream(4, "bulk"), same(4, "bulk");
  const std::vector<double> numbers = bulk_uniform(stream, 5000, 2, 4);
  const std::vector<uint32_t> words = bulk_words(same, 5000);
  for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(numbers[i], 2 + words[i] * 0x1p-31) << i;
}

TEST(BulkRandom, NormalNumbersHaveTheDistributionOfNormalOnes) {
  RandomStream stream(5, "bulk");
  std::vector<double> numbers = bulk_normal(stream, 200'001);
  ASSERT_EQ(numbers.size(), 200'001U);
  std::sort(numbers.begin(), numbers.end());
  double apart = 0;  // Kolmogorov-Smirnov; exceeds 1.95 / sqrt(n) once in a thousand times
  for (size_t i = 0; i < numbers.size(); ++i)
    apart = std::max(apart, std::abs(0.5 * std::erfc(-numbers[i] / std::sqrt(2.0)) -
                                     (static_cast<double>(i) + 0.5) / static_cast<double>(numbers.size())));
  EXPECT_LT(apart, 1.95 / std::sqrt(200'001.0));
  EXPECT_LT(numbers.front(), -4);
  EXPECT_GT(numbers.back(), 4);
}

TEST(BulkRandom, NormalPairsAreThoseOfTheFormulaInDouble) {
  RandomStream stream(6, "bulk"), same(6, "bulk");
  constexpr size_t kPairs = 5000;
  const std::vector<double> numbers = bulk_normal(stream, 2 * kPairs);
  const std::vector<uint32_t> words = bulk_words(same, 2 * kPairs);
  for (size_t i = 0; i < kPairs; ++i) {
    const double radius = std::sqrt(-2 * std::log(((words[i] >> 1) + 0.5) * 0x1p-31));
    const double angle = 2 * M_PI * words[kPairs + i] * 0x1p-32;
    EXPECT_NEAR(numbers[i], radius * std::cos(angle), 2e-5);
    EXPECT_NEAR(numbers[kPairs + i], radius * std::sin(angle), 2e-5);
  }
}

}  // namespace
}  // namespace tessera
