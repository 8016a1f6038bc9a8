// Fits against published points and values (Hoffmann et al. 2022, read off by Epoch AI), and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "io/files/file.h"
#include "laws/curve_fit.h"
#include "laws/frontier.h"
#include "laws/kaplan.h"
#include "laws/loss_law.h"
#include "laws/minimise.h"
#include "laws/points.h"

namespace tessera::laws {
namespace {

std::string data(const std::string& name) { return std::string(TESSERA_TEST_DATA) + "/laws/" + name; }

std::vector<Point> chinchilla(bool all) {
  std::vector<Point> points = read_points(data("chinchilla_points.csv")).points;
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.loss < b.loss; });
  if (!all) points.resize(points.size() - 5);  // the published fits leave out the five highest losses
  return points;
}

void expect_near(double value, double wanted, double relative) {
  EXPECT_NEAR(value, wanted, relative * std::abs(wanted));
}

TEST(Minimise, FindsTheMinimumOfRosenbrocksValley) {
  const Objective valley = [](std::span<const double> x, std::span<double> gradient) {
    const double bend = x[1] - x[0] * x[0];
    gradient[0] = -400 * x[0] * bend - 2 * (1 - x[0]), gradient[1] = 200 * bend;
    return 100 * bend * bend + (1 - x[0]) * (1 - x[0]);
  };
  const Minimum found = minimise(valley, {-1.2, 1});
  EXPECT_NEAR(found.x[0], 1, 1e-6);
  EXPECT_NEAR(found.x[1], 1, 1e-6);
}

TEST(Minimise, FindsTheMinimumOfAbsoluteValues) {
  const Minimum found = minimise(with_gradient([](std::span<const double> x) {
                                   return std::abs(x[0] - 3) + 5 * std::abs(x[1] + 2 * x[0]);
                                 }),
                                 {1, 1});
  EXPECT_NEAR(found.x[0], 3, 1e-4);
  EXPECT_NEAR(found.x[1], -6, 1e-4);
}

TEST(LossLaw, ReachesThePublishedOptimum) {
  const auto began = std::chrono::steady_clock::now();
  const std::vector<Point> points = chinchilla(false);
  ASSERT_EQ(points.size(), 240u);
  const LossFit fit = fit_loss_law(points);
  expect_near(fit.objective, 0.0010182740178, 1e-6);
  expect_near(fit.law.E, 1.8172181, 0.005);
  expect_near(fit.law.alpha, 0.3473105, 0.005);
  expect_near(fit.law.beta, 0.3671724, 0.005);
  expect_near(fit.law.size_exponent(), 0.51389955, 0.005);
  EXPECT_NEAR(huber_sum(fit.law, points), fit.objective, 1e-9);
  const Allocation best = best_allocation(fit.law, 5.76e23);
  expect_near(best.parameters, 73190438721.9, 0.02);
  expect_near(best.samples, 1311646735235.2, 0.02);
  expect_near(best.loss, 1.9739121, 0.001);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 5);
}

TEST(LossLaw, ReachesTheOptimumWithTheFiveHighestLosses) {
  const LossFit fit = fit_loss_law(chinchilla(true));
  expect_near(fit.objective, 0.00182601052307, 1e-6);
  expect_near(fit.law.E, 1.8913385, 0.005);
  expect_near(fit.law.alpha, 0.3493129, 0.005);
  expect_near(fit.law.beta, 0.4530493, 0.005);
}

TEST(LossLaw, ReachesTheOptimumOfHalfOfThePoints) {
  const LossFit fit = fit_loss_law(read_points(data("chinchilla_subset.csv")).points);
  expect_near(fit.objective, 0.000433404848, 1e-6);
  expect_near(fit.law.E, 1.7828319, 0.005);
  expect_near(fit.law.alpha, 0.3257905, 0.005);
  expect_near(fit.law.beta, 0.3624702, 0.005);
}

TEST(LossLaw, HoffmannsPrintedLawMissesThePoints) {
  const LossLaw printed{406.4, 410.7, 1.69, 0.34, 0.28};
  const std::vector<Point> points = chinchilla(false);
  EXPECT_GT(huber_sum(printed, points), 3 * fit_loss_law(points).objective);
}

TEST(LossLaw, RecoversALawWithoutNoise) {
  const LossFit fit = fit_loss_law(read_points(data("synthetic_exact.csv")).points);
  expect_near(fit.law.A, 482, 1e-3);
  expect_near(fit.law.B, 2085, 1e-3);
  expect_near(fit.law.E, 1.82, 1e-5);
  expect_near(fit.law.alpha, 0.348, 1e-4);
  expect_near(fit.law.beta, 0.366, 1e-4);
}

TEST(LossLaw, NoiseGivesThePublishedOptimum) {
  const LossFit fit = fit_loss_law(read_points(data("synthetic_noise.csv")).points);
  expect_near(fit.objective, 0.00011138892, 1e-5);
  expect_near(fit.law.alpha, 0.2998881, 0.002);
  expect_near(fit.law.beta, 0.4199117, 0.002);
}

TEST(LossLaw, TheBestAllocationIsAMinimumAtEqualCompute) {
  const LossLaw law{482, 2085, 1.82, 0.348, 0.366};
  const Allocation best = best_allocation(law, 1e21);
  expect_near(6 * best.parameters * best.samples, 1e21, 1e-9);
  for (const double factor : {0.9, 1.1})
    EXPECT_GT(law.loss(best.parameters * factor, best.samples / factor), best.loss);
}

TEST(LossLaw, BootstrapIntervalsAreThoseOfThePublishedSpread) {
  const std::vector<Point> points = chinchilla(false);
  const LossFit fit = fit_loss_law(points);
  const std::vector<LossLaw> laws = bootstrap(points, fit, 60);
  const Interval alpha = interval_of(laws, [](const LossLaw& law) { return law.alpha; });
  EXPECT_TRUE(alpha.contains(fit.law.alpha));
  // 90 % of a normal distribution are 3.3 standard deviations wide; the published one is 0.0161.
  expect_near(alpha.high - alpha.low, 3.3 * 0.0161, 0.5);
  EXPECT_EQ(bootstrap(points, fit, 1).front().alpha, laws.front().alpha);
}

TEST(LossLaw, TheBestSamplesOfASizeAreThoseOfItsBudget) {
  const LossLaw law{482, 2085, 1.82, 0.348, 0.366};
  const Allocation best = best_allocation(law, 1e21);
  expect_near(best_samples(law, best.parameters), best.samples, 1e-9);
  expect_near(samples_for(law, 1e9, law.loss(1e9, 3e10)), 3e10, 1e-6);
  EXPECT_TRUE(std::isinf(samples_for(law, 1e9, law.E)));
}

TEST(CurveFit, TheFirstHalfPredictsTheEnd) {
  Curve curve;
  for (double samples = 1000; samples <= 64000; samples += 1000)
    curve.samples.push_back(samples), curve.losses.push_back(0.4 + 30 / std::sqrt(samples));
  const Extrapolation found = extrapolate(curve);
  expect_near(found.predicted, found.measured, 1e-3);
  EXPECT_EQ(found.from_samples, 32000);
  EXPECT_TRUE(std::isnan(extrapolate({.samples = {1, 2, 3}, .losses = {3, 2, 1}}).measured));
}

TEST(Frontier, ApproachTwoFindsExponentsWithoutNoise) {
  const Frontier frontier = fit_iso_flop(read_points(data("synthetic_exact.csv")).points);
  expect_near(frontier.size_exponent, 0.5126050, 0.005);
  ASSERT_EQ(frontier.optima.size(), 11u);
  expect_near(frontier.optima[4].parameters, 261853817.98, 1e-4);
}

TEST(Frontier, ApproachTwoFindsExponentsInItsIntervals) {
  const Frontier frontier = fit_iso_flop(read_points(data("synthetic_noise.csv")).points);
  expect_near(frontier.size_exponent, 0.5836343882, 1e-6);
  EXPECT_TRUE(frontier.size_interval.contains(0.5833333));
  EXPECT_LT(frontier.size_interval.high - frontier.size_interval.low, 0.05);
}

TEST(Frontier, ApproachOneFollowsTheEnvelopeOfCurves) {
  const LossLaw law{482, 2085, 1.82, 0.348, 0.366};
  std::vector<Curve> curves;
  for (double parameters = 1e7; parameters < 2e10; parameters *= 1.5) {
    Curve curve{.parameters = parameters, .flop_per_sample = 6 * parameters};
    for (double samples = 1e7; samples < 1e13; samples *= 1.2)
      curve.samples.push_back(samples), curve.losses.push_back(law.loss(parameters, samples));
    curves.push_back(std::move(curve));
  }
  // Budgets between those at which the smallest and the largest size are best would give 0.5126; the ends
  // repeat one size.
  std::vector<Optimum> inside;
  for (const Optimum& optimum : fit_envelope(curves, 400).optima)
    if (optimum.parameters > 1.2e7 && optimum.parameters < 1e10) inside.push_back(optimum);
  std::vector<double> flop, parameters;
  for (const Optimum& optimum : inside)
    flop.push_back(optimum.flop), parameters.push_back(optimum.parameters);
  expect_near(fit_line(flop, parameters).exponent, 0.5126, 0.02);
}

TEST(Kaplan, RecoversPowerLaws) {
  std::vector<double> x, losses;
  for (double n = 1e6; n < 1e10; n *= 2) x.push_back(n), losses.push_back(std::pow(8.8e13 / n, 0.076));
  const PowerLaw law = fit_power_law(x, losses);
  expect_near(law.exponent, 0.076, 1e-9);
  expect_near(law.scale, 8.8e13, 1e-6);
}

TEST(Kaplan, RecoversTheLawOfSizeAndSamples) {
  const JointLaw truth{.alpha_n = 0.076, .alpha_d = 0.103, .n_c = 6.4e13, .d_c = 1.8e13};
  std::vector<Point> points;
  for (double n = 1e6; n < 2e9; n *= 4)
    for (double d = 1e7; d < 1e11; d *= 4)
      points.push_back({.parameters = n, .samples = d, .flop = 6 * n * d, .loss = truth.loss(n, d)});
  const JointLaw found = fit_joint_law(points);
  expect_near(found.alpha_n, 0.076, 0.01);
  expect_near(found.alpha_d, 0.103, 0.01);
  const KaplanLaws laws = fit_kaplan(points);
  EXPECT_GT(laws.parameters.exponent, 0);
  EXPECT_GT(laws.samples.exponent, 0);
  EXPECT_GT(laws.flop.exponent, 0);
}

// Returns the error of reading and checking a CSV.
std::string refusal(const std::string& csv) {
  const std::string path = ::testing::TempDir() + "/points.csv";
  write_text_atomic(path, csv);
  try {
    check_points(read_points(path).points, "points.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Points, RefusalsAreOneLine) {
  const std::string header = "parameters,samples,loss\n";
  const auto six = [&](const char* rows) { return header + rows; };
  EXPECT_NE(refusal(six("1,1,9\n")).find("1 points; a law needs at least 6"), std::string::npos);
  EXPECT_NE(refusal(six("1e6,-5,3\n")).find("line 2: samples = -5, must be above 0"), std::string::npos);
  EXPECT_NE(refusal(six("1e6,many,3\n")).find("samples is 'many'"), std::string::npos);
  EXPECT_NE(refusal(six("1e6,1\n")).find("2 cells, the header has 3"), std::string::npos);
  EXPECT_NE(refusal("parameters,loss\n1,1\n").find("no column 'samples'"), std::string::npos);
  EXPECT_NE(refusal("samples,loss\n1,1\n").find("no column 'parameters'"), std::string::npos);
  EXPECT_NE(refusal("").find("no header"), std::string::npos);
  EXPECT_NE(refusal(six("5,1,9\n5,2,8\n5,3,7\n5,4,6\n5,5,5\n5,6,4\n")).find("all points have 5"),
            std::string::npos);
  EXPECT_NE(refusal(six("1,5,9\n2,5,8\n3,5,7\n4,5,6\n5,5,5\n6,5,4\n")).find("several lengths"),
            std::string::npos);
  EXPECT_NE(refusal(six("1,1,1\n2,2,2\n3,3,3\n4,4,4\n5,5,5\n6,6,6\n")).find("losses rise with compute"),
            std::string::npos);
  EXPECT_EQ(refusal(six("1,1,6\n2,2,5\n3,3,4\n4,4,3\n5,5,2\n6,6,1\n")), "");
}

TEST(Points, RepeatedSamplesAreMarked) {
  Point point{.samples = 100};
  EXPECT_FALSE(point.repeats());
  point.unique_samples = 100;
  EXPECT_FALSE(point.repeats());
  point.unique_samples = 50;
  EXPECT_TRUE(point.repeats());
}

}  // namespace
}  // namespace tessera::laws
