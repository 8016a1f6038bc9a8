#include "tasks/pretrain/vae.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/value.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

constexpr int64_t kSide = 16;

TaskSetup small_setup(const std::string& task = "") {
  TaskSetup setup;
  setup.settings = find_task("vae").resolve(parse_toml(task, "task"));
  setup.model = models::resolve_model(
      "autoencoder_kl",
      parse_toml("image_size = 16\ndims = [8, 16]\ndepth = 1\ngroups = 4\nscaling_factor = 0.0", "model"));
  setup.seed = 1;
  setup.preprocess.size = kSide;
  setup.preprocess.mean = setup.preprocess.std = {0.5, 0.5, 0.5};
  setup.sides = {kSide};
  data::SourceConfig config;
  config.path = "shapes:train=64,val=16,size=32";
  setup.train = data::open_source(config, data::Split::train);
  setup.validation = data::open_source(config, data::Split::validation);
  return setup;
}

// The first samples of the training stream, prepared for a step.
Inputs batch_of(const Task& task, int64_t size, int64_t step, int64_t first = 0, int64_t whole = 0) {
  const StreamSpec stream = task.streams().at(0);
  data::Loader loader(*stream.source, data::make_eval_transform(small_setup().preprocess),
                      {.batch_size = 8, .shuffle = false, .drop_last = false});
  data::Batch batch = *loader.next();
  check(size <= batch.size, "the batch is too small");
  batch.first = first;
  batch.whole = whole ? whole : batch.size;
  task.prepare({&batch, 1}, {.seed = 3, .step = step});
  Inputs inputs;
  inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp32));
  return size == batch.size ? inputs : inputs.piece(0, batch.size / size);
}

std::unique_ptr<Task> make(const TaskSetup& setup) { return find_task("vae").make(setup); }

TEST(Vae, LossIsItsFormula) {
  const auto task = make(small_setup("kl_weight = 0.5"));
  set_training(task->parts(), false);
  const Inputs inputs = batch_of(*task, 8, 1);
  const Loss loss = task->loss(inputs, {}, Collective::alone());
  auto& codec = dynamic_cast<models::LatentCodec&>(*task->backbones()[0].model);
  const torch::NoGradGuard no_grad;
  const Tensor x = inputs.at("image"), moments = codec.moments(x);
  const Tensor mean = moments.narrow(1, 0, 4), logvar = moments.narrow(1, 4, 4).clamp(-30, 20);
  const Tensor decoded = codec.decode(mean + (logvar / 2).exp() * inputs.at("noise"));
  const double error = (decoded - x).abs().sum().item<double>(),
               kl = (0.5 * (mean.square() + logvar.exp() - 1 - logvar)).sum().item<double>();
  EXPECT_NEAR(loss.sum.item<double>(), (error + 0.5 * kl) / (3 * kSide * kSide),
              1e-4 * loss.sum.item<double>());
  EXPECT_NEAR(loss.terms.at(1).sum.item<double>(), kl, 1e-4 * kl);
}

TEST(Vae, NoiseFollowsTheSamplesPlaceAndTheStep) {
  const auto task = make(small_setup());
  const Tensor here = batch_of(*task, 8, 1).at("noise"), again = batch_of(*task, 8, 1).at("noise"),
               later = batch_of(*task, 8, 2).at("noise"), shifted = batch_of(*task, 8, 1, 4, 12).at("noise");
  EXPECT_EQ(here.sizes(), (std::vector<int64_t>{8, 4, 8, 8}));
  EXPECT_TRUE(torch::equal(here, again));
  EXPECT_FALSE(torch::equal(here, later));
  EXPECT_TRUE(torch::equal(here.slice(0, 4), shifted.slice(0, 0, 4)));
}

TEST(Vae, PiecesAddUpToTheWhole) {
  const auto task = make(small_setup());
  set_training(task->parts(), false);
  const Inputs inputs = batch_of(*task, 8, 1);
  double sum = 0;
  for (int64_t i = 0; i < 4; ++i)
    sum += task->loss(inputs.piece(i, 4), {}, Collective::alone()).sum.item<double>();
  EXPECT_NEAR(sum, task->loss(inputs, {}, Collective::alone()).sum.item<double>(), 1e-5 * sum);
}

TEST(Vae, LearnsAndKeepsTheVarianceOfItsLatents) {
  const auto task = make(small_setup());
  set_training(task->parts(), true);
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : named_parameters(task->parts())) parameters.push_back(parameter);
  torch::optim::AdamW optimiser(parameters, torch::optim::AdamWOptions(5e-3));
  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const Inputs inputs = batch_of(*task, 8, step);
    const Loss loss = task->loss(inputs, {}, Collective::alone());
    last = loss.sum.item<double>() / 8;
    if (step == 0) first = last;
    optimiser.zero_grad();
    loss.sum.backward();
    optimiser.step();
  }
  EXPECT_LT(last, 0.6 * first);
  double variance = 0;
  for (const auto& [name, tensor] : named_state(task->parts()))
    if (name == "latent_scale.running_var") variance = tensor.item<double>();
  EXPECT_GT(variance, 0);
  EXPECT_NE(variance, 1);
}

TEST(Vae, PsnrIsThatOfImagesInTheirRange) {
  const Tensor x = torch::zeros({2, 3, 4, 4}), y = torch::full({2, 3, 4, 4}, 0.2);
  EXPECT_NEAR(psnr(y, x)[0].item<double>(), 10 * std::log10(4 / 0.04), 1e-4);
  EXPECT_NEAR(psnr(torch::full({1, 3, 4, 4}, 5.0), torch::ones({1, 3, 4, 4}))[0].item<double>(),
              10 * std::log10(4e12), 1e-3);
}

TEST(Vae, SaysWhatItNeeds) {
  TaskSetup setup = small_setup();
  setup.preprocess.mean = {0.485, 0.456, 0.406};
  EXPECT_EQ(error_of([&] { make(setup); }),
            "task vae takes images with values in [-1, 1]: preprocess.mean and preprocess.std must be [0.5, "
            "0.5, 0.5]");
  setup = small_setup();
  setup.sides = {17};
  EXPECT_EQ(error_of([&] { make(setup); }),
            "images of 17 pixels a side: autoencoder_kl takes multiples of 2");
  setup = small_setup();
  setup.model = models::resolve_model("vit_tiny_patch16_224");
  EXPECT_NE(error_of([&] { make(setup); }).find("task vae needs a model that encodes images into latents"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::tasks
