// The landscape of a quadratic form, with known results.
#include "analysis/landscape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/landscape_testing.h"
#include "models/heads/class_head.h"

namespace tessera::analysis {
namespace {

using torch::Tensor;

// 1/2 w' A w with eigenvalues -1, 2, 7.
struct Bowl {
  Bowl() {
    torch::manual_seed(3);
    const Tensor q = std::get<0>(torch::linalg_qr(torch::randn({3, 3}, torch::kFloat64)));
    matrix = q.mm(torch::diag(torch::tensor({-1.0, 2.0, 7.0}, torch::kFloat64))).mm(q.t());
    weight = torch::randn({1, 3}, torch::kFloat64).requires_grad_();
    objective = {{weight}, [this] { return weight.mm(matrix).mm(weight.t()).squeeze() / 2; }};
  }
  Bowl(const Bowl&) = delete;
  Tensor matrix, weight;
  Objective objective;
};

TEST(Hessian, BothWaysAreTheMatrix) {
  const Bowl bowl;
  const Tensor v = torch::randn(3, torch::kFloat64);
  for (const HessianProduct how : {HessianProduct::exact, HessianProduct::differences})
    EXPECT_TRUE(torch::allclose(hessian_times(bowl.objective, v, how), bowl.matrix.mv(v), 1e-6, 1e-8));
}

TEST(Hessian, PowerIterationAndLanczosFindTheEnds) {
  const Bowl bowl;
  const Tensor start = torch::ones(3, torch::kFloat64);
  EXPECT_NEAR(power_iteration(bowl.objective, start, 100, 1e-12).rayleigh.back(), 7, 1e-6);
  const auto values = lanczos_values(bowl.objective, start, 3);
  EXPECT_NEAR(values.front(), -1, 1e-9);
  EXPECT_NEAR(values.back(), 7, 1e-9);
}

// If the least eigenvalue has the largest magnitude, power iteration finds it, and a shift by it gives the
// largest.
TEST(Hessian, AShiftByTheLeastGivesTheLargest) {
  const Tensor weight = torch::ones({1, 3}, torch::kFloat64).requires_grad_();
  const Tensor diagonal = torch::tensor({-9.0, 2.0, 5.0}, torch::kFloat64);
  const Objective objective{{weight}, [&] { return (weight.square() * diagonal).sum() / 2; }};
  const Tensor start = torch::ones(3, torch::kFloat64);
  const double least = power_iteration(objective, start, 200, 1e-12).rayleigh.back();
  EXPECT_NEAR(least, -9, 1e-6);
  const auto shifted = power_iteration(objective, start, 200, 1e-12, HessianProduct::exact, {}, least);
  EXPECT_NEAR(shifted.rayleigh.back(), 5, 1e-6);
  EXPECT_NEAR(lanczos_values(objective, start, 3).back(), shifted.rayleigh.back(), 1e-6);
}

TEST(Hessian, OfAViTTwoWaysAgreeOnItsLargestEigenvalue) {
  Value settings;
  for (const auto& [key, value] : {std::pair{"dim", 16},
                                   {"depth", 2},
                                   {"heads", 2},
                                   {"patch_size", 8},
                                   {"image_size", 16},
                                   {"classes", 4}})
    settings.set(key, value);
  const auto model = models::build_classifier(models::resolve_model("vit", settings), 1);
  model->backbone->to(torch::kFloat64);
  model->backbone->eval();
  torch::manual_seed(5);
  const Tensor images = torch::randn({8, 3, 16, 16}, torch::kFloat64), labels = torch::arange(8).remainder(4);
  // Attention with taps runs as the composition, which has second derivatives.
  const Objective objective{model->backbone->parameters(), [&] {
                              models::Taps taps;
                              models::Context context;
                              context.taps = &taps;
                              return torch::cross_entropy_loss(model->forward(images, context), labels);
                            }};
  const Tensor start = flat(random_direction(objective.parameters, 6, 0));
  const double power = power_iteration(objective, start, 100, 1e-4).rayleigh.back();
  const auto ends = lanczos_values(objective, start, 30);
  const double largest = std::abs(ends.back()) > std::abs(ends.front()) ? ends.back() : ends.front();
  EXPECT_NEAR(power, largest, 0.01 * std::abs(largest));
  // In float32, by differences of the fused kernels' gradients.
  const Tensor exact = hessian_times(objective, start);
  model->backbone->to(torch::kFloat32);
  const Tensor narrow = images.to(torch::kFloat32);
  const Objective fused{model->backbone->parameters(),
                        [&] { return torch::cross_entropy_loss(model->forward(narrow), labels); }};
  const Tensor by_differences = hessian_times(fused, start.to(torch::kFloat32), HessianProduct::differences);
  EXPECT_LT((by_differences.to(torch::kFloat64) - exact).norm().item<double>(),
            0.01 * exact.norm().item<double>());
}

TEST(Landscape, WeightsAreWhatTheyWereAfterwards) {
  const Bowl bowl;
  const Tensor before = bowl.weight.detach().clone();
  const Direction one = random_direction({bowl.weight}, 1, 0), two = random_direction({bowl.weight}, 1, 1);
  EXPECT_FALSE(torch::equal(one[0], two[0]));
  EXPECT_TRUE(torch::equal(one[0], random_direction({bowl.weight}, 1, 0)[0]));
  loss_plane(bowl.objective, one, two, {-1, 0, 1});
  EXPECT_THROW(loss_line(bowl.objective, one, {0, 1}, [](int64_t, int64_t) -> bool { throw 1; }), int);
  EXPECT_TRUE(torch::equal(bowl.weight, before));
}

TEST(Landscape, AStoppedPlaneGoesOnWhereItWas) {
  const Bowl bowl;
  const Direction one = random_direction({bowl.weight}, 1, 0), two = random_direction({bowl.weight}, 1, 1);
  const std::vector<double> alphas = {-1, 0, 0.5};
  const auto stopped =
      loss_plane(bowl.objective, one, two, alphas, [](int64_t done, int64_t) { return done < 4; });
  EXPECT_EQ(stopped.size(), 4u);
  EXPECT_EQ(loss_plane(bowl.objective, one, two, alphas, {}, stopped),
            loss_plane(bowl.objective, one, two, alphas));
}

TEST(Landscape, APlaneThroughThreePointsHoldsAllOfThem) {
  torch::manual_seed(4);
  const std::vector<Tensor> origin = {torch::randn({3, 2}), torch::randn(4)},
                            b = {torch::randn({3, 2}), torch::randn(4)},
                            c = {torch::randn({3, 2}), torch::randn(4)};
  const auto plane = plane_through(origin, b, c);
  ASSERT_TRUE(plane.has_value());
  const Tensor first = flat(plane->first), second = flat(plane->second);
  EXPECT_NEAR(first.norm().item<double>(), 1, 1e-12);
  EXPECT_NEAR(second.norm().item<double>(), 1, 1e-12);
  EXPECT_NEAR(first.dot(second).item<double>(), 0, 1e-12);
  // float32 values are exact in float64, the dtype of the computation.
  const auto wide = [](const std::vector<Tensor>& point) { return flat(point).to(torch::kFloat64); };
  EXPECT_TRUE(torch::allclose(wide(origin) + plane->b_first * first, wide(b), 0, 1e-12));
  EXPECT_TRUE(
      torch::allclose(wide(origin) + plane->c_first * first + plane->c_second * second, wide(c), 0, 1e-12));
  EXPECT_GT(plane->b_first, 0);
  EXPECT_GT(plane->c_second, 0);
}

TEST(Landscape, ThreePointsOnALineSpanNoPlane) {
  const std::vector<Tensor> origin = {torch::zeros(3)}, b = {torch::ones(3)}, c = {torch::full(3, 2.5)};
  EXPECT_FALSE(plane_through(origin, b, c).has_value());
  EXPECT_FALSE(plane_through(origin, origin, c).has_value()) << "b is the origin";
  EXPECT_FALSE(plane_through(origin, b, origin).has_value()) << "c is the origin";
  EXPECT_FALSE(plane_through(origin, b, b).has_value());
}

TEST(Landscape, APlaneMayHaveOtherPlacesAlongItsSecondDirection) {
  const Bowl bowl;
  const Direction one = random_direction({bowl.weight}, 1, 0), two = random_direction({bowl.weight}, 1, 1);
  const auto all = loss_plane(bowl.objective, one, two, {-1, 0, 0.5});
  EXPECT_EQ(loss_plane(bowl.objective, one, two, {-1, 0.5}, {-1, 0, 0.5}),
            (std::vector<double>{all[0], all[1], all[2], all[6], all[7], all[8]}));
}

TEST(Landscape, ANormalisedDirectionHasTheFiltersLengths) {
  const Tensor weight = torch::randn({4, 3, 2}), bias = torch::randn(4);
  const Direction drawn = random_direction({weight, bias}, 2, 0);
  const Direction filters = normalised(drawn, {weight, bias});
  EXPECT_TRUE(torch::allclose(filters[0].flatten(1).norm(2, {1}), weight.flatten(1).norm(2, {1})));
  EXPECT_EQ(filters[1].abs().sum().item<double>(), 0);
  const Direction layers = normalised(drawn, {weight, bias}, Normalisation::layer);
  EXPECT_NEAR(layers[0].norm().item<double>(), weight.norm().item<double>(), 1e-5);
  EXPECT_EQ(layers[1].abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace tessera::analysis
