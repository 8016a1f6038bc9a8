#include "eval/tsne.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

std::vector<float> two_clouds(int64_t each, int64_t width) {
  RandomStream stream(1, "tsne_test");
  std::vector<float> points;
  for (int64_t i = 0; i < 2 * each * width; ++i)
    points.push_back(static_cast<float>(stream.normal() + (i < each * width ? 0 : 20)));
  return points;
}

TEST(Tsne, AffinitiesHaveTheirPerplexityAndSumToOne) {
  const auto points = two_clouds(20, 3);
  const Affinities found = affinities(points, 40, 3, 5);
  double sum = 0;
  for (const float p : found.joint) sum += static_cast<double>(p);
  EXPECT_NEAR(sum, 1, 1e-5);
  for (const double precision : found.precision) EXPECT_GT(precision, 0);
}

TEST(Tsne, TheGradientIsThatOfTheDivergence) {
  const auto points = two_clouds(5, 2);
  const Affinities found = affinities(points, 10, 2, 3);
  RandomStream stream(2, "tsne_test");
  std::vector<double> y(20);
  for (double& value : y) value = stream.normal();
  const Divergence at = tsne_divergence(found.joint, y, 10);
  for (size_t k = 0; k < y.size(); ++k) {
    std::vector<double> up = y, down = y;
    up[k] += 1e-5, down[k] -= 1e-5;
    const double slope =
        (tsne_divergence(found.joint, up, 10).kl - tsne_divergence(found.joint, down, 10).kl) / 2e-5;
    EXPECT_NEAR(at.gradient[k], slope, 1e-6);
  }
}

TEST(Tsne, TwoCloudsAreApart) {
  const auto points = two_clouds(25, 4);
  const TsneMap map = tsne(points, 50, 4, {}, {.steps = 400, .perplexity = 10, .exaggeration = 4});
  double first[2] = {}, second[2] = {};
  for (size_t i = 0; i < 50; ++i)
    for (size_t k = 0; k < 2; ++k) (i < 25 ? first : second)[k] += map.places[2 * i + k] / 25;
  const double apart = std::hypot(first[0] - second[0], first[1] - second[1]);
  for (size_t i = 0; i < 25; ++i)
    EXPECT_LT(std::hypot(map.places[2 * i] - first[0], map.places[2 * i + 1] - first[1]), apart / 2);
  const TsneMap again = tsne(points, 50, 4, {}, {.steps = 400, .perplexity = 10, .exaggeration = 4});
  EXPECT_EQ(map.places, again.places);
}

TEST(Tsne, WhatCannotBeIsRefused) {
  const auto points = two_clouds(5, 2);
  EXPECT_THROW(affinities(points, 10, 2, 10), Error);
  EXPECT_THROW(affinities(points, 10, 2, 1), Error);
  EXPECT_THROW(affinities(points, 9, 2, 3), Error);
}

}  // namespace
}  // namespace tessera::eval
