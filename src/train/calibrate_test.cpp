// Int8 step sizes calibrated on pictures, and their effect on predictions.
#include "open/calibrate.h"

#include <cmath>

#include "nn/linear.h"
#include "open/open_task.h"
#include "train/setup.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

double rounding_error(const torch::Tensor& x, double step_size) {
  const torch::Tensor rounded = (x / step_size).clamp(-128, 127).round() * step_size;
  return (rounded - x).square().mean().item<double>();
}

TEST(Magnitudes, TheStepSizeIsAsGoodAsTheBestOne) {
  torch::manual_seed(1);
  torch::Tensor outliers = torch::randn({20000});
  outliers[7] = 60;
  for (const torch::Tensor& x :
       {torch::rand({20000}), torch::randn({20000}), torch::gelu(3 * torch::randn({20000})), outliers,
        torch::rand({20000}).pow(8), torch::tensor({0.0f, 2.0f})}) {
    Magnitudes magnitudes;
    magnitudes.add(x.slice(0, 0, 5000), "x");
    magnitudes.add(x.slice(0, 5000), "x");
    const double most = x.abs().max().item<double>();
    double least = rounding_error(x, most / 127);
    for (double share = 1; share > 0.01; share *= 0.98)
      least = std::min(least, rounding_error(x, most / 127 * share));
    const double found = rounding_error(x, magnitudes.best_step_size());
    EXPECT_LE(found, 1.05 * least + 1e-4 * most * most / 127) << most;
    EXPECT_LE(magnitudes.best_step_size(), 1.04 * most / 127);
  }
  Magnitudes nothing;
  EXPECT_TRUE(nothing.empty());
  nothing.add(torch::zeros({3}), "x");
  EXPECT_GT(nothing.best_step_size(), 0);
  EXPECT_ANY_THROW(nothing.add(torch::tensor({1.0f, std::nanf("")}), "x"));
}

class CalibrateTest : public TemporaryFolder {
 protected:
  // Returns the scores of all validation images.
  static torch::Tensor scores(const train::Setup& setup, const OpenedTask& opened,
                              tasks::Precision precision) {
    const auto loader = open_stream(setup, setup.model.task->validation());
    const torch::NoGradGuard no_grad;
    const tasks::AutocastScope autocast(torch::kCPU, precision);
    std::vector<torch::Tensor> all;
    while (const auto batch = loader->next())
      all.push_back(opened.task->classifier()
                        ->forward(tasks::to_device(*batch, "validation", torch::kCPU, precision).at("image"))
                        .to(torch::kFloat32));
    return torch::cat(all);
  }
  static double agreement(const torch::Tensor& a, const torch::Tensor& b) {
    return (a.argmax(1) == b.argmax(1)).to(torch::kFloat64).mean().item<double>();
  }
  static double distance(const torch::Tensor& a, const torch::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
  }
};

const std::vector<std::string> kLonger = {"data.path=\"shapes:train=256,val=128\"", "train.epochs=6",
                                          "model.dim=32"};

TEST_F(CalibrateTest, FixedScalesPredictWhatFloatDoes) {
  const Recipe recipe = tiny_recipe(path("run"), kLonger);
  run_training(recipe);
  const train::Setup setup = make_setup(recipe);
  const OpenedTask opened = open_task(path("run"));
  const torch::Tensor wanted = scores(setup, opened, tasks::Precision::fp32),
                      dynamic = scores(setup, opened, tasks::Precision::int8);
  data::Loader loader(*setup.data.train, data::make_eval_transform(setup.recipe.preprocess),
                      {.batch_size = 24});
  std::vector<int64_t> told;
  const NamedTensors step_sizes = calibrate(*opened.task, loader, 40, [&](int64_t done) {
    told.push_back(done);
    return true;
  });
  EXPECT_EQ(told, (std::vector<int64_t>{24, 40}));
  EXPECT_EQ(step_sizes.size(), 2u * 4 + 1);  // qkv, proj, fc1 and fc2 of two blocks, and the head
  const torch::Tensor fixed = scores(setup, opened, tasks::Precision::int8);
  EXPECT_FALSE(torch::equal(fixed, dynamic));
  EXPECT_GE(agreement(fixed, wanted), 0.97);
  EXPECT_LT(distance(fixed, wanted), 0.03);
  EXPECT_TRUE(torch::equal(scores(setup, opened, tasks::Precision::fp32), wanted));

  // The same from the file; and an invalid step size is an error.
  save_weights(path("fixed.safetensors"), tasks::named_state(opened.task->parts()), opened.info);
  const OpenedTask again = open_task(path("fixed.safetensors"));
  EXPECT_TRUE(torch::equal(scores(setup, again, tasks::Precision::int8), fixed));
  again.task->backbones()[0].model->named_buffers()["blocks.0.mlp.fc1.input_log_step"].fill_(std::nan(""));
  save_weights(path("broken.safetensors"), tasks::named_state(again.task->parts()), again.info);
  EXPECT_EQ(error_of([&] { open_task(path("broken.safetensors")); }),
            "'" + path("broken.safetensors") +
                "': tensor 'blocks.0.mlp.fc1.input_log_step' rounds inputs to multiples of nan, "
                "must be the logarithm of a step size");
  data::Loader others(*setup.data.train, data::make_eval_transform(setup.recipe.preprocess), {});
  EXPECT_EQ(error_of([&] { calibrate(*again.task, others, 40, [](int64_t) { return false; }); }),
            "interrupted");
}

TEST_F(CalibrateTest, LearnedStepSizesPredictInInt8WhatTheyWereTrainedFor) {
  std::vector<std::string> settings = kLonger;
  settings.insert(settings.end(), {"quantization.weights=8", "quantization.activations=8"});
  const Recipe recipe = tiny_recipe(path("run"), settings);
  run_training(recipe);
  const train::Setup setup = make_setup(recipe);
  const OpenedTask opened = open_task(path("run"));
  const torch::Tensor fake = scores(setup, opened, tasks::Precision::fp32),
                      integers = scores(setup, opened, tasks::Precision::int8);
  EXPECT_GE(agreement(integers, fake), 0.97);
  EXPECT_LT(distance(integers, fake), 0.03);
}

}  // namespace
}  // namespace tessera::train
