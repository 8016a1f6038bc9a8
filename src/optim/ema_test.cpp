#include <torch/nn/modules/linear.h>

#include "optim/ema.h"

#include <gtest/gtest.h>
#include "ops/torch.h"

#include <cmath>

#include "core/error.h"

namespace tessera::train {
namespace {

NamedTensors some_model(torch::ScalarType dtype, double value) {
  return {{"w", torch::full({40, 1000}, value, dtype)},
          {"t", torch::full({2, 3, 4, 4}, value, dtype).contiguous(torch::MemoryFormat::ChannelsLast)},
          {"count", torch::full({}, static_cast<int64_t>(value), torch::kInt64)}};
}

TEST(Ema, OfAConstantModelFollowsTheGeometricSeries) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    Ema ema({.decay = 0.9}, some_model(dtype, 0));
    for (int i = 0; i < 5; ++i) ema.update(some_model(dtype, 1));
    const torch::Tensor want = torch::full({40, 1000}, 1 - std::pow(0.9, 5), torch::kFloat64);
    EXPECT_TRUE(torch::allclose(ema.tensors()[0].second.to(torch::kFloat64), want,
                                dtype == torch::kFloat32 ? 1e-6 : 1e-14));
    EXPECT_EQ(ema.tensors()[2].second.item<int64_t>(), 0);  // 0.1 truncates
    EXPECT_EQ(ema.updates(), 5);
  }
}

TEST(Ema, LeavesTheModelAndItsStartAlone) {
  const NamedTensors model = some_model(torch::kFloat32, 3);
  Ema ema({.decay = 0.5}, model);
  model[0].second.fill_(5);
  ema.update(model);
  EXPECT_EQ(model[0].second.max().item<float>(), 5);
  EXPECT_EQ(ema.tensors()[0].second.max().item<float>(), 4);
}

TEST(Ema, WarmupStartsAtTheModelAndEndsAtTheDecay) {
  Ema ema({.decay = 0.99, .warmup = true}, some_model(torch::kFloat32, 0));
  EXPECT_EQ(ema.decay_at(1), 0);
  EXPECT_NEAR(ema.decay_at(2), 1 - std::pow(2, -2.0 / 3), 1e-15);
  EXPECT_EQ(ema.decay_at(1000000), 0.99);
  ema.update(some_model(torch::kFloat32, 7));
  EXPECT_EQ(ema.tensors()[0].second.min().item<float>(), 7);
}

// As on a device, where the host does not know whether a step was skipped.
TEST(Ema, UpdatesThatDoNotCountChangeNothing) {
  for (const bool warmup : {false, true}) {
    const EmaConfig config{.decay = 0.75, .warmup = warmup};
    Ema there(config, some_model(torch::kFloat32, 0)), here(config, some_model(torch::kFloat32, 0));
    for (const double value : {4.0, -1.0, 8.0, -1.0, 12.0}) {
      const torch::Tensor counts = torch::full({}, value > 0, torch::kBool);
      Ema::finish_there(there.begin_there(some_model(torch::kFloat32, value), counts), counts);
      if (value > 0) here.update(some_model(torch::kFloat32, value));
    }
    EXPECT_EQ(there.updates(), 3);
    there.update(some_model(torch::kFloat32, 16)), here.update(some_model(torch::kFloat32, 16));
    EXPECT_EQ(there.updates(), 4);
    for (size_t i = 0; i < here.tensors().size(); ++i)
      EXPECT_TRUE(torch::allclose(there.tensors()[i].second, here.tensors()[i].second, 1e-5))
          << here.tensors()[i].first << ", warm-up " << warmup;
  }
}

TEST(Ema, ExchangeTakesTheAveragesInAndTheModelBack) {
  torch::nn::Linear module(2, 2);
  Ema ema({}, named_state(*module));
  const torch::Tensor trained = torch::ones({2, 2}), averaged = module->weight.detach().clone();
  module->weight.set_data(trained.clone());
  ema.exchange(named_state(*module));
  EXPECT_TRUE(torch::equal(module->weight, averaged));
  EXPECT_TRUE(module->weight.requires_grad());
  ema.exchange(named_state(*module));
  EXPECT_TRUE(torch::equal(module->weight, trained));
  EXPECT_TRUE(torch::equal(ema.tensors()[0].second, averaged));
}

TEST(Ema, SavedTensorsComeBackAndMisfitsAreNamed) {
  Ema ema({.decay = 0.9}, some_model(torch::kFloat32, 1)),
      other({.decay = 0.9}, some_model(torch::kFloat32, 2));
  other.update(some_model(torch::kFloat32, 4));
  ema.load_state(other.updates(), other.tensors());
  EXPECT_EQ(ema.updates(), 1);
  EXPECT_TRUE(torch::equal(ema.tensors()[0].second, other.tensors()[0].second));
  EXPECT_FALSE(ema.tensors()[0].second.is_same(other.tensors()[0].second));
  NamedTensors missing = other.tensors();
  missing.erase(missing.begin());
  try {
    ema.load_state(1, missing);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "ema state: tensor 'w' is missing");
  }
}

TEST(Ema, AnotherModelIsRefused) {
  Ema ema({}, some_model(torch::kFloat32, 1));
  NamedTensors model = some_model(torch::kFloat32, 1);
  model[1].first = "u";
  EXPECT_THROW(ema.update(model), Error);
  model.pop_back();
  EXPECT_THROW(ema.update(model), Error);
}

}  // namespace
}  // namespace tessera::train
