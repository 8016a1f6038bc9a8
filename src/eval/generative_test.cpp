#include "eval/generative.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "eval/eval_testing.h"

namespace tessera::eval {
namespace {

std::vector<double> probabilities(int64_t rows, int64_t classes) {
  RandomStream random(9, "probabilities");
  std::vector<double> out;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> row;
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) row.push_back(std::exp(2 * random.normal())), sum += row.back();
    for (const double value : row) out.push_back(value / sum);
  }
  return out;
}

// 200 sure samples of ten classes: 10 if each split has all classes, 1 if each has a single one.
TEST(InceptionScore, OfSamplesSortedByClassNeedsShuffling) {
  const auto score = [](std::optional<uint64_t> seed) {
    InceptionScoreMeter meter(10, 200, 10, seed);
    for (size_t i = 0; i < 200; ++i) {
      std::vector<double> sure(10, 0.0);
      sure[i / 20] = 1;
      meter.add(sure);
    }
    return meter.score().mean;
  };
  EXPECT_NEAR(score({}), 1, 1e-9);
  EXPECT_GT(score(0), 7);
  EXPECT_EQ(score(3), score(3));
}

TEST(InceptionScore, IsItsDefinitionSplitBySplit) {
  const int64_t rows = 23, classes = 5, splits = 4;
  const std::vector<double> p = probabilities(rows, classes);
  InceptionScoreMeter meter(classes, rows, splits);
  for (int64_t i = 0; i < rows; i += 2)
    meter.add(std::span(p).subspan(static_cast<size_t>(i * classes),
                                   static_cast<size_t>(std::min<int64_t>(2, rows - i) * classes)));
  const InceptionScore score = meter.score();
  ASSERT_EQ(score.splits.size(), 4u);
  for (int64_t split = 0; split < splits; ++split) {
    const int64_t first = split * rows / splits, last = (split + 1) * rows / splits;
    double divergence = 0;
    for (int64_t i = first; i < last; ++i)
      for (int64_t c = 0; c < classes; ++c) {
        double mean = 0;
        for (int64_t k = first; k < last; ++k)
          mean += p[static_cast<size_t>(k * classes + c)] / static_cast<double>(last - first);
        const double value = p[static_cast<size_t>(i * classes + c)];
        divergence += value * (std::log(value) - std::log(mean)) / static_cast<double>(last - first);
      }
    EXPECT_NEAR(score.splits[static_cast<size_t>(split)], std::exp(divergence), 1e-12);
  }
}

TEST(InceptionScore, ExtremesAndErrors) {
  InceptionScoreMeter sure(3, 3, 1);
  sure.add(std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1});
  EXPECT_NEAR(sure.score().mean, 3, 1e-12);  // the number of classes
  InceptionScoreMeter same(3, 2, 1);
  same.add(std::vector<double>{0.2, 0.3, 0.5, 0.2, 0.3, 0.5});
  EXPECT_NEAR(same.score().mean, 1, 1e-12);
  EXPECT_ANY_THROW(InceptionScoreMeter(3, 2, 3));
  InceptionScoreMeter few(3, 2, 1);
  few.add(std::vector<double>{1, 0, 0});
  EXPECT_ANY_THROW(few.score());
  EXPECT_ANY_THROW(few.add(std::vector<double>{1, 0}));
  EXPECT_ANY_THROW(few.add(std::vector<double>{std::nan(""), 0, 0}));
}

TEST(KernelDistance, IsItsDefinition) {
  const int64_t width = 5;
  const std::vector<float> a = normal_rows(140, width, 1), b = normal_rows(30, width, 2, 1);
  const auto kernel = [&](const std::vector<float>& x, size_t i, const std::vector<float>& y, size_t j) {
    double dot = 0;
    for (size_t d = 0; d < 5; ++d)
      dot += static_cast<double>(x[i * 5 + d]) * static_cast<double>(y[j * 5 + d]);
    return std::pow(dot / 5 + 1, 3);
  };
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < 140; ++i)
    for (size_t j = 0; j < 140; ++j) aa += i == j ? 0 : kernel(a, i, a, j) / (140.0 * 139);
  for (size_t i = 0; i < 30; ++i)
    for (size_t j = 0; j < 30; ++j) bb += i == j ? 0 : kernel(b, i, b, j) / (30.0 * 29);
  for (size_t i = 0; i < 140; ++i)
    for (size_t j = 0; j < 30; ++j) ab += kernel(a, i, b, j) / (140.0 * 30);
  EXPECT_NEAR(kernel_distance(a, b, width), aa + bb - 2 * ab, 1e-9);
  EXPECT_ANY_THROW(kernel_distance(std::span(a).first(5), b, width));
}

TEST(KernelDistance, SubsetsOfTheWholeAreTheWhole) {
  const std::vector<float> a = normal_rows(20, 3, 1), b = normal_rows(20, 3, 2, 1);
  const KernelDistance whole = kernel_distance_of_subsets(a, b, 3, 4, 20, 7);
  EXPECT_NEAR(whole.mean, kernel_distance(a, b, 3), 1e-9);
  EXPECT_NEAR(whole.deviation, 0, 1e-9);
  const KernelDistance some = kernel_distance_of_subsets(a, b, 3, 50, 10, 7);
  EXPECT_EQ(some.mean, kernel_distance_of_subsets(a, b, 3, 50, 10, 7).mean);
  EXPECT_GT(some.deviation, 0);
  EXPECT_NEAR(some.mean, whole.mean, 4 * some.deviation);
  EXPECT_ANY_THROW(kernel_distance_of_subsets(a, b, 3, 1, 21, 7));
}

// The definition, pair by pair.
ManifoldScores plain_scores(const std::vector<float>& real, const std::vector<float>& fake, size_t width,
                            size_t k) {
  const auto distance = [&](const std::vector<float>& x, size_t i, const std::vector<float>& y, size_t j) {
    double sum = 0;
    for (size_t d = 0; d < width; ++d)
      sum += std::pow(static_cast<double>(x[i * width + d]) - static_cast<double>(y[j * width + d]), 2);
    return std::sqrt(sum);
  };
  const auto radius = [&](const std::vector<float>& x, size_t i) {
    std::vector<double> all;
    for (size_t j = 0; j < x.size() / width; ++j)
      if (i != j) all.push_back(distance(x, i, x, j));
    std::sort(all.begin(), all.end());
    return all[k - 1];
  };
  const size_t m = real.size() / width, n = fake.size() / width;
  ManifoldScores out;
  for (size_t j = 0; j < n; ++j) {
    bool any = false;
    for (size_t i = 0; i < m; ++i) {
      const bool in = distance(real, i, fake, j) <= radius(real, i);
      any = any || in;
      out.density += in ? 1.0 / static_cast<double>(k * n) : 0;
    }
    out.precision += any ? 1.0 / static_cast<double>(n) : 0;
  }
  for (size_t i = 0; i < m; ++i) {
    bool recalled = false, covered = false;
    for (size_t j = 0; j < n; ++j) {
      recalled = recalled || distance(real, i, fake, j) <= radius(fake, j);
      covered = covered || distance(real, i, fake, j) <= radius(real, i);
    }
    out.recall += recalled ? 1.0 / static_cast<double>(m) : 0;
    out.coverage += covered ? 1.0 / static_cast<double>(m) : 0;
  }
  return out;
}

TEST(ManifoldScores, AreTheirDefinition) {
  for (const auto& [reals, fakes, k] : {std::tuple{40, 25, 1}, {25, 40, 3}, {30, 30, 5}}) {
    const std::vector<float> real = normal_rows(reals, 2, 1), fake = normal_rows(fakes, 2, 2, 0.7);
    const ManifoldScores got = manifold_scores(real, fake, 2, k),
                         want = plain_scores(real, fake, 2, static_cast<size_t>(k));
    EXPECT_NEAR(got.precision, want.precision, 1e-12);
    EXPECT_NEAR(got.recall, want.recall, 1e-12);
    EXPECT_NEAR(got.density, want.density, 1e-12);
    EXPECT_NEAR(got.coverage, want.coverage, 1e-12);
  }
}

TEST(ManifoldScores, OfEqualAndOfDistantSets) {
  const std::vector<float> near = normal_rows(150, 3, 1), far = normal_rows(150, 3, 2, 1000);
  const ManifoldScores same = manifold_scores(near, near, 3, 3), apart = manifold_scores(near, far, 3, 3);
  EXPECT_EQ(same.precision, 1);
  EXPECT_EQ(same.recall, 1);
  EXPECT_EQ(same.coverage, 1);
  EXPECT_EQ(apart.precision, 0);
  EXPECT_EQ(apart.recall, 0);
  EXPECT_EQ(apart.density, 0);
  EXPECT_EQ(apart.coverage, 0);
  EXPECT_ANY_THROW(manifold_scores(near, std::span(near).first(9), 3, 3));
}

}  // namespace
}  // namespace tessera::eval
