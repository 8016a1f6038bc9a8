#include "optim/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace tessera::train {
namespace {

// A quadratic in 400 dimensions: each sample's gradient is the true one plus noise of a known covariance.
TEST(NoiseScale, IsThatOfAQuadraticWithKnownNoise) {
  constexpr size_t kSize = 400;
  constexpr int kPiece = 4, kPieces = 8, kSteps = 400;
  std::vector<double> truth(kSize), deviation(kSize);
  double square = 0, variance = 0;
  RandomStream random(3, "noise");
  for (size_t i = 0; i < kSize; ++i) {
    truth[i] = random.normal(), deviation[i] = random.uniform(0.5, 4);
    square += truth[i] * truth[i], variance += deviation[i] * deviation[i];
  }
  NoiseScale scale;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> whole(kSize);
    double piece_square = 0, whole_square = 0;
    for (int piece = 0; piece < kPieces; ++piece)
      for (size_t i = 0; i < kSize; ++i) {
        const double mean = truth[i] + deviation[i] * random.normal() / std::sqrt(kPiece);
        whole[i] += mean / kPieces;
        if (piece == 0) piece_square += mean * mean;
      }
    for (const double value : whole) whole_square += value * value;
    scale.add(piece_square, kPiece, whole_square, kPiece * kPieces);
  }
  EXPECT_NEAR(scale.value(), variance / square, 0.1 * variance / square);
  NoiseScale again;
  again.load(scale.state(), "test");
  EXPECT_EQ(again.value(), scale.value());
}

TEST(NoiseScale, StepsWithoutAnEstimateAreIgnored) {
  NoiseScale scale;
  EXPECT_TRUE(std::isnan(scale.value()));
  scale.add(2, 8, 1, 8);  // the piece is the whole
  scale.add(NAN, 1, 1, 8);
  EXPECT_TRUE(std::isnan(scale.value()));
  scale.add(1, 2, 1, 8);  // no noise at all
  EXPECT_EQ(scale.value(), 0);
  Value state;
  state.set("gradient", "one");
  EXPECT_THROW(scale.load(state, "manifest"), Error);
}

}  // namespace
}  // namespace tessera::train
