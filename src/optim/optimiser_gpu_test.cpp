// Optimisers and clipping for a GPU, which the emulator runs on tensors of the CPU, against their compositions.
#include <gtest/gtest.h>
#include "ops/torch.h"

#include <algorithm>
#include <cmath>

#include "core/value.h"
#include "kernels/gpu/library.h"
#include "ops/gpu.h"
#include "ops/read_backs_testing.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/optimiser.h"

namespace tessera::train {
namespace {

struct Emulated {
  Emulated() { kernels::gpu::use_table(tessera_gpu_table()); }
  ~Emulated() { kernels::gpu::use_table(nullptr); }
};

std::unique_ptr<Optimiser> drawn(const std::string& settings) {
  torch::manual_seed(1);
  const auto parameter = [](std::vector<int64_t> shape) { return torch::randn(shape).requires_grad_(); };
  torch::Tensor channels_last = torch::randn({4, 3, 5, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  return make_optimiser(
      resolve_optimiser(parse_toml(settings, "test")),
      {{{{"w", parameter({50, 97})}, {"conv", channels_last.requires_grad_()}}, 1, 0.05},
       {{{"b", parameter({17})}, {"none", parameter({0, 4})}, {"late", parameter({9})}}, 0.5, 0}});
}

void draw_gradients(const Optimiser& optimiser, uint64_t step) {
  torch::manual_seed(step);
  const auto parameters = optimiser.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (step > 1 || i + 1 < parameters.size())  // the last one gets its first gradient later
      torch::Tensor(parameters[i]).mutable_grad() = torch::randn(parameters[i].sizes());
}

constexpr const char* kSettings[] = {
    "name = 'adamw'",
    "name = 'adam'\nbetas = [0.8, 0.9]\neps = 1e-6",
    "name = 'adamw'\namsgrad = true",
    "name = 'muon'",
    "name = 'muon'\nnesterov = false\nscale = 'first'",
    "name = 'sgd'",
    "name = 'sgd'\nmomentum = 0\nweight_decay = 0",
    "name = 'sgd'\nnesterov = true",
    "name = 'sgd'\ndampening = 0.3",
    "name = 'lars'\ntrust_coeff = 0.02",
    "name = 'lars'\ntrust_clip = true\nadapt_matrices = true",
    "name = 'lamb'",
    "name = 'lamb'\nmax_grad_norm = 0\ntrust_clip = true\nalways_adapt = true",
    "name = 'lamb'\ndecoupled_decay = true\ngrad_averaging = false\nbias_correction = false",
};

TEST(OptimiserOnGpu, TheKernelIsTheComposition) {
  for (const char* settings : kSettings) {
    const auto by_kernel = drawn(settings), composed = drawn(settings);
    composed->use_composition(true);
    const Emulated emulated;
    for (uint64_t step = 0; step < 4; ++step) {
      draw_gradients(*by_kernel, step), draw_gradients(*composed, step);
      by_kernel->step(0.01, 0.75, 0.5), composed->step(0.01, 0.75, 0.5);
      by_kernel->zero_grad(), composed->zero_grad();
    }
    for (size_t i = 0; i < by_kernel->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(by_kernel->parameters()[i], composed->parameters()[i], 1e-5, 1e-6))
          << settings << ", parameter " << i;
  }
}

TEST(OptimiserOnGpu, AFactorThatIsNotFiniteChangesNothing) {
  for (const char* settings : kSettings) {
    const auto optimiser = drawn(settings);
    EXPECT_FALSE(optimiser->updates_there());
    const Emulated emulated;
    ASSERT_TRUE(optimiser->updates_there()) << settings;
    draw_gradients(*optimiser, 2);
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& p : optimiser->parameters()) before.push_back(p.detach().clone());
    const ops::ReadBacks counted;
    for (const double factor : {std::nan(""), HUGE_VAL})
      optimiser->step_there(0.01, torch::full({}, factor), 1);
    optimiser->parameters()[0].mutable_grad()[0] = HUGE_VAL;  // as a factor that is not finite comes about
    optimiser->step_there(0.01, torch::full({}, std::nan("")), 1);
    EXPECT_EQ(counted.count(), 0) << settings;
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(torch::equal(optimiser->parameters()[i], before[i])) << settings;
    draw_gradients(*optimiser, 2);
    optimiser->step_there(0.01, torch::ones({}), 1);
    EXPECT_FALSE(torch::equal(optimiser->parameters()[0], before[0]));
  }
}

// Neither steps nor the updates of a parameter, which bias corrections and checkpoints have, count a skipped step.
TEST(OptimiserOnGpu, SkippedStepsDoNotCount) {
  for (const char* settings : kSettings) {
    const auto there = drawn(settings), composed = drawn(settings);
    composed->use_composition(true);
    const Emulated emulated;
    const auto both = [&](uint64_t step, bool skipped) {
      draw_gradients(*there, step), draw_gradients(*composed, step);
      there->step_there(0.01, torch::full({}, skipped ? HUGE_VAL : 0.75), 0.5);
      if (!skipped) composed->step(0.01, 0.75, 0.5);
      there->zero_grad(), composed->zero_grad();
    };
    both(2, true), both(1, false), both(1, true), both(3, false), both(4, true), both(5, false);
    EXPECT_EQ(there->steps(), 3);
    draw_gradients(*there, 6), draw_gradients(*composed, 6);
    there->step(0.01, 1, 1), composed->step(0.01, 1, 1);  // with the host's counts again
    EXPECT_EQ(there->steps(), 4);
    for (size_t i = 0; i < there->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(there->parameters()[i], composed->parameters()[i], 1e-5, 1e-6))
          << settings << ", parameter " << i;
    const NamedTensors want = composed->state(), got = there->state();
    ASSERT_EQ(got.size(), want.size()) << settings;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].first, want[i].first);
      EXPECT_TRUE(torch::allclose(got[i].second, want[i].second, 1e-5, 1e-6))
          << settings << ": " << want[i].first;
    }
  }
}

// Copies for products are those of the weights after every step, also a skipped one, and end with the optimiser.
TEST(OptimiserOnGpu, CopiesInHalfPrecisionAreThoseOfTheWeights) {
  for (const char* settings : kSettings) {
    auto optimiser = drawn(settings);
    std::vector<torch::Tensor> parameters = optimiser->parameters();
    const Emulated emulated;
    optimiser->keep_halves({parameters[0], parameters[1], parameters[3]});  // the last one is empty
    const auto copied = [&](size_t i) {
      const torch::Tensor half = ops::half_of(parameters[i]);
      return half.defined() && torch::equal(half, parameters[i].detach().to(torch::kBFloat16));
    };
    EXPECT_FALSE(ops::half_of(parameters[0]).defined());
    for (const double factor : {1.0, HUGE_VAL, 0.5}) {
      draw_gradients(*optimiser, 2);
      optimiser->step_there(0.01, torch::full({}, factor), 1);
      EXPECT_TRUE(copied(0) && copied(1)) << settings;
      EXPECT_FALSE(ops::half_of(parameters[2]).defined());
      parameters[0].detach().add_(1);  // as a checkpoint that is loaded
      EXPECT_FALSE(ops::half_of(parameters[0]).defined());
    }
    optimiser.reset();
    EXPECT_FALSE(ops::half_of(parameters[1]).defined());
  }
}

// The kernel's moving average is that of the host. The other tensors are left to it.
TEST(OptimiserOnGpu, TheKernelAverages) {
  for (const char* settings : {"name = 'adamw'", "name = 'sgd'", "name = 'lamb'", "name = 'muon'"}) {
    const auto there = drawn(settings), here = drawn(settings);
    const Emulated emulated;
    const auto state_of = [](const Optimiser& optimiser, double buffer) {
      NamedTensors state;
      for (const torch::Tensor& p : optimiser.parameters())
        state.emplace_back(std::to_string(state.size()), p);
      state.emplace_back("buffer", torch::full({3}, buffer));
      return state;
    };
    Ema average_there({.decay = 0.9, .warmup = true}, state_of(*there, 1)),
        average_here({.decay = 0.9, .warmup = true}, state_of(*here, 1));
    for (uint64_t step = 2; step < 6; ++step) {
      draw_gradients(*there, step), draw_gradients(*here, step);
      const torch::Tensor scale = torch::full({}, step == 3 ? HUGE_VAL : 0.75), finite = scale.isfinite();
      AveragingThere averaging = average_there.begin_there(state_of(*there, 2), finite);
      there->step_there(0.01, scale, 1, &averaging);
      const auto taken = std::count_if(averaging.pairs.begin(), averaging.pairs.end(),
                                       [](const auto& pair) { return !pair.first.defined(); });
      EXPECT_EQ(taken, std::string(settings).find("muon") == std::string::npos ? 4 : 2) << settings;
      Ema::finish_there(averaging, finite);
      if (step == 3) continue;
      here->step(0.01, 0.75), average_here.update(state_of(*here, 2));
    }
    for (size_t i = 0; i < average_here.tensors().size(); ++i)
      EXPECT_TRUE(
          torch::allclose(average_there.tensors()[i].second, average_here.tensors()[i].second, 1e-5, 1e-6))
          << settings << ", tensor " << i;
  }
}

TEST(ClipOnGpu, IsClippingWithoutReading) {
  for (const char* mode : {"none", "norm", "each", "value", "agc"})
    for (const double size : {0.01, 3.0}) {
      const auto parameters_of = [&] {
        torch::manual_seed(3);
        std::vector<torch::Tensor> parameters;
        for (const auto& shape : std::vector<std::vector<int64_t>>{{20, 31}, {5}, {0, 3}}) {
          parameters.push_back(torch::randn(shape).requires_grad_());
          parameters.back().mutable_grad() = torch::randn(shape) * size;
        }
        return parameters;
      };
      auto here = parameters_of(), there = parameters_of();
      const ClipConfig config{mode, 0.5, 2};
      const Clipped want = clip_gradients(config, here);
      const ops::ReadBacks counted;
      const ClippedThere got = clip_gradients_there(config, there, {}, torch::ones({}));
      EXPECT_EQ(counted.count(), 0) << mode;
      EXPECT_NEAR(got.norm.item<double>(), want.norm, 1e-5 * want.norm) << mode;
      EXPECT_NEAR(got.scale.item<double>(), want.scale, 1e-5) << mode;
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_TRUE(torch::allclose(here[i].grad(), there[i].grad(), 1e-5, 1e-7))
            << mode << ", gradient " << i;
      // A loss or a gradient that is not finite is visible in the factor.
      for (const double loss : {std::nan(""), HUGE_VAL})
        EXPECT_FALSE(std::isfinite(
            clip_gradients_there(config, there, {}, torch::full({}, loss)).scale.item<double>()));
      there[1].mutable_grad()[2] = HUGE_VAL;
      EXPECT_FALSE(
          std::isfinite(clip_gradients_there(config, there, {}, torch::ones({})).scale.item<double>()));
    }
}

}  // namespace
}  // namespace tessera::train
