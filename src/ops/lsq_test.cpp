#include "ops/lsq.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::ops {
namespace {

// The definition, one number at a time.
double quantised(double x, double step_size, const QuantisedRange& range) {
  const double v =
      std::clamp(x / step_size, -static_cast<double>(range.low), static_cast<double>(range.high));
  return std::nearbyint(v) * step_size;
}

TEST(Lsq, RoundsToMultiplesOfTheStepWithinTheRange) {
  torch::manual_seed(0);
  const torch::Tensor x = torch::randn({200}, torch::kFloat64) * 3;
  for (const int64_t bits : {2, 4, 8})
    for (const bool sign : {true, false}) {
      const QuantisedRange range = quantised_range(bits, sign);
      EXPECT_EQ(range.low + range.high + 1, int64_t{1} << bits);
      const torch::Tensor step_size = torch::tensor({0.25}, torch::kFloat64);
      const torch::Tensor y = learned_step_size_quantise(x, step_size, range);
      for (int64_t i = 0; i < x.numel(); ++i)
        EXPECT_DOUBLE_EQ(y[i].item<double>(), quantised(x[i].item<double>(), 0.25, range));
    }
  EXPECT_THROW(quantised_range(1, true), Error);
}

// Compares with the paper's rule, element by element; a step size per channel equals separate quantisers.
TEST(Lsq, TheStepsGradientFollowsItsRule) {
  torch::manual_seed(1);
  const QuantisedRange range = quantised_range(3, true);
  const torch::Tensor x = torch::randn({4, 50}, torch::kFloat64) * 2;
  const torch::Tensor weight = torch::randn({4, 50}, torch::kFloat64);
  const torch::Tensor step_sizes = first_step_size(x, range, true).requires_grad_();
  ASSERT_EQ(step_sizes.sizes(), torch::IntArrayRef({4, 1}));
  const torch::Tensor whole = x.clone().requires_grad_();
  (learned_step_size_quantise(whole, step_sizes, range) * weight).sum().backward();
  for (int64_t c = 0; c < 4; ++c) {
    const double s = step_sizes[c].item<double>();
    double sum = 0;
    for (int64_t i = 0; i < 50; ++i) {
      const double v = x[c][i].item<double>() / s, w = weight[c][i].item<double>();
      const bool inside = v > -4 && v < 3;
      sum += w * (inside ? std::nearbyint(v) - v : v <= -4 ? -4.0 : 3.0);
      EXPECT_DOUBLE_EQ(whole.grad()[c][i].item<double>(), inside ? w : 0.0);
    }
    EXPECT_NEAR(step_sizes.grad()[c].item<double>(), sum / std::sqrt(50 * 3.0), 1e-12);
  }
}

TEST(Lsq, AnOffsetMovesTheGrid) {
  const QuantisedRange range = quantised_range(2, false);
  const torch::Tensor x = torch::tensor({-1.0, 0.1, 0.9, 7.0}, torch::kFloat64).requires_grad_();
  const torch::Tensor step_size = torch::tensor({1.0}, torch::kFloat64).requires_grad_();
  const torch::Tensor offset = torch::tensor({0.5}, torch::kFloat64).requires_grad_();
  const torch::Tensor y = learned_step_size_quantise(x, step_size, range, offset);
  EXPECT_TRUE(torch::allclose(y, torch::tensor({0.5, 0.5, 0.5, 3.5}, torch::kFloat64)));
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::tensor({0.0, 0.0, 1.0, 0.0}, torch::kFloat64)));
  EXPECT_EQ(offset.grad().item<double>(), 3);
}

// Values and gradients by their rules, element by element; a step size and a zero point for each of two
// heads.
TEST(Lsq, AZeroPointMovesTheGridByWholeLevels) {
  torch::manual_seed(2);
  for (const int64_t bits : {2, 3, 8})
    for (const bool sign : {true, false}) {
      const QuantisedRange range = quantised_range(bits, sign);
      const double low = -static_cast<double>(range.low), high = static_cast<double>(range.high);
      const torch::Tensor x = (torch::randn({2, 31}, torch::kFloat64) * high / 3).requires_grad_();
      const torch::Tensor steps = torch::tensor({{0.7}, {0.4}}, torch::kFloat64).requires_grad_();
      const torch::Tensor zeros = torch::tensor({{0.6}, {-1.3}}, torch::kFloat64).requires_grad_();
      const torch::Tensor weight = torch::randn({2, 31}, torch::kFloat64);
      const torch::Tensor y = zero_point_quantise(x, steps, zeros, range, 31);
      (y * weight).sum().backward();
      for (int64_t h = 0; h < 2; ++h) {
        const double s = steps[h].item<double>(), z = std::nearbyint(zeros[h].item<double>());
        double to_step = 0, to_zero = 0;
        for (int64_t i = 0; i < 31; ++i) {
          const double v = x[h][i].item<double>() / s + z, w = weight[h][i].item<double>();
          const bool inside = v > low && v < high;
          const double level = std::nearbyint(std::clamp(v, low, high));
          EXPECT_NEAR(y[h][i].item<double>(), s * (level - z), 1e-12);
          EXPECT_EQ(x.grad()[h][i].item<double>(), inside ? w : 0.0);
          to_step += w * (inside ? level - v : level - z);
          to_zero += inside ? 0 : -s * w;
        }
        const double scale = 1 / std::sqrt(31 * high);
        EXPECT_NEAR(steps.grad()[h].item<double>(), to_step * scale, 1e-11);
        EXPECT_NEAR(zeros.grad()[h].item<double>(), to_zero * scale, 1e-11);
      }
    }
}

}  // namespace
}  // namespace tessera::ops
