#include "eval/frechet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "eval/eval_testing.h"
#include "eval/numerics.h"

namespace tessera::eval {
namespace {

Gaussian moments(const std::vector<float>& rows, int64_t width) {
  Moments sums(width);
  sums.add(rows);
  return sums.gaussian();
}

// A symmetric matrix Q diag(values) Q^T for a product Q of reflections.
std::vector<double> with_eigenvalues(const std::vector<double>& values, uint64_t seed) {
  const auto n = values.size();
  std::vector<double> a(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) a[i * n + i] = values[i];
  RandomStream random(seed, "reflections");
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<double> v(n), p(n, 0.0);
    double square = 0;
    for (double& x : v) x = random.normal(), square += x * x;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) p[i] += a[i * n + j] * v[j] * 2 / square;
    double dot = 0;
    for (size_t i = 0; i < n; ++i) dot += p[i] * v[i];
    for (size_t i = 0; i < n; ++i) p[i] -= dot / square * v[i];
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) a[i * n + j] -= v[i] * p[j] + p[i] * v[j];
  }
  return a;
}

TEST(SymmetricEigenvalues, AreThoseItWasMadeFrom) {
  for (const int64_t n : {1, 2, 3, 5, 17, 64, 65, 130}) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>((i * 37) % 23) - 7);  // some repeat
    std::vector<double> got = symmetric_eigenvalues(with_eigenvalues(values, static_cast<uint64_t>(n)), n);
    std::sort(values.begin(), values.end());
    ASSERT_EQ(got.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got[i], values[i], 1e-12 * static_cast<double>(n)) << n;
  }
}

TEST(SymmetricEigenvalues, ZerosAndDiagonals) {
  EXPECT_TRUE(symmetric_eigenvalues({}, 0).empty());
  for (const double value : symmetric_eigenvalues(std::vector<double>(25, 0.0), 5))
    EXPECT_NEAR(value, 0, 1e-300);
  EXPECT_ANY_THROW(symmetric_eigenvalues({std::nan("")}, 1));
}

TEST(PivotedCholesky, GivesTheMatrixAndItsRank) {
  const int64_t n = 9, rank = 4;
  const std::vector<double> matrix = with_eigenvalues({3, 0, 0, 1e-3, 0, 20, 0, 1, 0}, 5);
  const PivotedCholesky l = pivoted_cholesky(matrix, n);
  EXPECT_EQ(l.rank, rank);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < l.rank; ++k)
        sum += l.factor[static_cast<size_t>(i * l.rank + k)] * l.factor[static_cast<size_t>(j * l.rank + k)];
      EXPECT_NEAR(
          sum,
          matrix[static_cast<size_t>(l.order[static_cast<size_t>(i)] * n + l.order[static_cast<size_t>(j)])],
          1e-12);
    }
}

TEST(Moments, AreThoseOfTheDefinition) {
  const int64_t width = 7, rows = 200;
  const std::vector<float> x =
      normal_rows(rows, width, 1, 1000);  // far from zero: sums of squares would lose digits
  const Gaussian got = moments(x, width);
  EXPECT_EQ(got.samples, rows);
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < width; ++j) {
      double mean_i = 0, mean_j = 0, sum = 0;
      for (int64_t s = 0; s < rows; ++s) {
        mean_i += static_cast<double>(x[static_cast<size_t>(s * width + i)]) / static_cast<double>(rows);
        mean_j += static_cast<double>(x[static_cast<size_t>(s * width + j)]) / static_cast<double>(rows);
      }
      for (int64_t s = 0; s < rows; ++s)
        sum += (static_cast<double>(x[static_cast<size_t>(s * width + i)]) - mean_i) *
               (static_cast<double>(x[static_cast<size_t>(s * width + j)]) - mean_j);
      EXPECT_NEAR(got.mean[static_cast<size_t>(i)], mean_i, 1e-9);
      EXPECT_NEAR(got.covariance[static_cast<size_t>(i * width + j)], sum / static_cast<double>(rows - 1),
                  1e-9);
    }
}

TEST(Moments, BatchesChangeNoBit) {
  const int64_t width = 40, rows = 333;
  const std::vector<float> x = normal_rows(rows, width, 2);
  const Gaussian whole = moments(x, width);
  Moments pieces(width);
  for (size_t at = 0, step = 1; at < x.size(); at += step * width, step = step % 90 + 13)
    pieces.add(std::span(x).subspan(at, std::min(x.size() - at, step * width)));
  EXPECT_EQ(pieces.gaussian().covariance, whole.covariance);
  EXPECT_EQ(pieces.gaussian().mean, whole.mean);
}

TEST(Moments, RefusesWhatIsNoNumber) {
  Moments sums(2);
  const std::vector<float> bad{1, 2, 3, std::numeric_limits<float>::infinity()};
  try {
    sums.add(bad);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "feature 1 of sample 1 is inf");
  }
  EXPECT_ANY_THROW(sums.add(std::span(bad).first(1)));
  EXPECT_ANY_THROW(Moments(3).gaussian());
}

// Two Gaussians with covariances of equal axes: the sum of (sqrt a - sqrt b)^2 along them.
TEST(FrechetDistance, OfDiagonalCovariances) {
  Gaussian a{10, {0, 1, 2}, {4, 0, 0, 0, 9, 0, 0, 0, 0}}, b{10, {1, 1, 4}, {1, 0, 0, 0, 16, 0, 0, 0, 25}};
  EXPECT_NEAR(frechet_distance(a, b), 1 + 4 + (2 - 1) * (2 - 1) + (3 - 4) * (3 - 4) + 25, 1e-9);
  EXPECT_NEAR(frechet_distance(b, a), frechet_distance(a, b), 1e-9);
  b.mean.push_back(0);
  EXPECT_ANY_THROW(frechet_distance(a, b));
}

TEST(FrechetDistance, IsSymmetricZeroAndKeptByRotations) {
  for (const int64_t width : {1, 6, 33}) {
    const Gaussian a = moments(normal_rows(20, width, 3), width),
                   b = moments(normal_rows(25, width, 4, 0.5), width);
    EXPECT_NEAR(frechet_distance(a, a), 0, 1e-6);
    EXPECT_NEAR(frechet_distance(a, b), frechet_distance(b, a), 1e-6);
    EXPECT_GT(frechet_distance(a, b), 0);
  }
}

}  // namespace
}  // namespace tessera::eval
