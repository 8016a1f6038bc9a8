#include "optim/clip.h"

#include <gtest/gtest.h>
#include "ops/torch.h"

#include <cmath>

#include "core/error.h"
#include "core/threads.h"

namespace tessera::train {
namespace {

std::vector<torch::Tensor> some_parameters(torch::ScalarType dtype) {
  torch::manual_seed(2);
  std::vector<torch::Tensor> parameters;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{200, 301}, {3, 2, 2, 2}, {5}, {}, {0, 3}}) {
    parameters.push_back(torch::randn(shape, torch::kFloat64).to(dtype).requires_grad_());
    parameters.back().mutable_grad() = torch::randn(shape, torch::kFloat64).to(dtype);
  }
  parameters.push_back(torch::ones({4}, dtype).requires_grad_());  // has no gradient
  return parameters;
}

torch::Tensor all_gradients(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> flat;
  for (const auto& p : parameters)
    if (p.grad().defined()) flat.push_back(p.grad().flatten().to(torch::kFloat64));
  return torch::cat(flat);
}

TEST(Clip, NormIsThatOfAllGradientsAsOneVector) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const double type : {0.5, 1.0, 1.5, 2.0, 3.0, 40.0, HUGE_VAL}) {
      const auto parameters = some_parameters(dtype);
      const double want = at::linalg_vector_norm(all_gradients(parameters), type).item<double>();
      const Clipped clipped = clip_gradients({"norm", 1.5, type}, parameters);
      EXPECT_NEAR(clipped.norm, want, 1e-12 * want) << type;
      EXPECT_NEAR(clipped.scale, 1.5 / (want + 1e-6), 1e-12) << type;
      EXPECT_NEAR(clipped.scale * want, 1.5, 1e-5) << type;
    }
}

TEST(Clip, SmallGradientsAreLeftAlone) {
  const auto parameters = some_parameters(torch::kFloat32);
  const torch::Tensor before = all_gradients(parameters).clone();
  EXPECT_EQ(clip_gradients({"norm", 1e6, 2}, parameters).scale, 1);
  EXPECT_EQ(clip_gradients({"none", 1e-6, 2}, parameters).scale, 1);
  EXPECT_EQ(clip_gradients({"value", 1e6, 2}, parameters).scale, 1);
  EXPECT_TRUE(torch::equal(all_gradients(parameters), before));
}

TEST(Clip, ValueBoundsEveryElement) {
  const auto parameters = some_parameters(torch::kFloat32);
  const torch::Tensor before = all_gradients(parameters).clone();
  clip_gradients({"value", 0.5, 2}, parameters);
  EXPECT_TRUE(torch::equal(all_gradients(parameters), before.clamp(-0.5, 0.5)));
}

// In the plain loops (float32) and in tensor operations, as on a device.
TEST(Clip, EachGradientHasABoundOfItsOwn) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const double type : {1.0, 2.0, 3.0, HUGE_VAL}) {
      const auto parameters = some_parameters(dtype);
      std::vector<torch::Tensor> before;
      for (const torch::Tensor& p : parameters)
        if (p.grad().defined()) before.push_back(p.grad().clone());
      EXPECT_EQ(clip_gradients({"each", 0.5, type}, parameters).scale, 1);
      for (size_t i = 0; i < before.size(); ++i) {
        if (before[i].numel() == 0) continue;
        const double norm = at::linalg_vector_norm(before[i].to(torch::kFloat64), type).item<double>();
        EXPECT_TRUE(torch::allclose(parameters[i].grad(), before[i] * std::min(1.0, 0.5 / (norm + 1e-6))))
            << type << " " << i;
      }
    }
}

TEST(Clip, AdaptiveClippingBoundsEachRowByItsParameters) {
  const auto parameters = some_parameters(torch::kFloat64);
  clip_gradients({"agc", 0.01, 2}, parameters);
  const torch::Tensor rows = parameters[0].grad().norm(2, 1),
                      allowed = parameters[0].detach().norm(2, 1) * 0.01;
  EXPECT_TRUE(torch::allclose(rows, allowed, 1e-12, 0));
}

TEST(Clip, AdaptiveClippingTakesTheNormsOfItsType) {
  for (const double type : {1.0, 3.0, HUGE_VAL}) {
    const auto parameters = some_parameters(torch::kFloat64);
    clip_gradients({"agc", 0.01, type}, parameters);
    const torch::Tensor rows = parameters[0].grad().norm(type, 1),
                        allowed = parameters[0].detach().norm(type, 1) * 0.01;
    EXPECT_TRUE(torch::allclose(rows, allowed, 1e-12, 0)) << type;
  }
}

TEST(Clip, NotANumberShowsInNormAndScale) {
  for (const double type : {1.0, 2.0, 3.0, HUGE_VAL}) {
    const auto parameters = some_parameters(torch::kFloat32);
    parameters[0].grad()[100][7] = NAN;
    const Clipped clipped = clip_gradients({"norm", 1, type}, parameters);
    EXPECT_TRUE(std::isnan(clipped.norm)) << type;
    EXPECT_TRUE(std::isnan(clipped.scale)) << type;
  }
}

// 1e30 to the power of 3 overflows float, and to the power of 20 double.
TEST(Clip, PowersOfLargeAndSmallGradientsStayInRange) {
  for (const double scale : {1e30, 1e-30})
    for (const double type : {3.0, 20.0}) {
      const torch::Tensor x = torch::tensor({3.0, -4.0}, torch::kFloat64).mul(scale).to(torch::kFloat32);
      const double want = std::pow(std::pow(3.0, type) + std::pow(4.0, type), 1 / type) * scale;
      EXPECT_NEAR(gradient_norm({x}, type), want, 1e-6 * want) << scale << " " << type;
      EXPECT_NEAR(gradient_norm({x.to(torch::kFloat64)}, type), want, 1e-6 * want) << scale << " " << type;
    }
  EXPECT_EQ(gradient_norm({torch::zeros({3})}, 3), 0);
}

TEST(Clip, NormIsTheSameForAnyNumberOfThreads) {
  const auto parameters = some_parameters(torch::kFloat32);
  const int before = num_threads();
  for (const double type : {2.0, 3.0}) {
    set_num_threads(1);
    const double one = clip_gradients({"norm", 1, type}, parameters).norm;
    set_num_threads(2);
    EXPECT_EQ(clip_gradients({"norm", 1, type}, parameters).norm, one);
  }
  set_num_threads(before);
}

TEST(Clip, WrongSettingsAreNamed) {
  const auto refusal = [](const ClipConfig& config) -> std::string {
    try {
      config.check();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal({"nrom", 1, 2}),
            "clip.mode is 'nrom', must be one of none, norm, value, agc, each, did you mean 'norm'?");
  EXPECT_EQ(refusal({"norm", 0, 2}), "clip.value is 0.0, must be above 0");
  EXPECT_EQ(refusal({"norm", 1, 0}), "clip.norm_type is 0.0, must be above 0");
}

}  // namespace
}  // namespace tessera::train
