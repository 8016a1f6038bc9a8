// What every registered size must give back from a file, and what every family must learn.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <ctime>

#include "data/loader.h"
#include "io/io_testing.h"
#include "tasks/classify.h"
#include "tests/contract/tiny.h"
#include "train/load.h"
#include "train/open_model.h"

namespace tessera::models {
namespace {

class EveryFile : public TemporaryFolder, public testing::WithParamInterface<Named> {};

TEST_P(EveryFile, HoldsSettingsAndWeights) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_model(spec, 1);
  train::WeightsInfo info;
  info.model = spec;
  train::save_weights(path("m.safetensors"), train::named_state(*model), info);
  const train::OpenedModel opened = train::open_model(path("m.safetensors"));
  EXPECT_EQ(first_difference(opened.info.model.settings, spec.settings), "");
  const torch::NoGradGuard no_grad;
  model->eval();
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({2, 3, tiny_side(spec), tiny_side(spec)});
  EXPECT_TRUE(torch::equal(opened.model->forward(x), model->forward(x)));
}

std::string name_of_size(const testing::TestParamInfo<Named>& one) { return one.param.size->name; }
INSTANTIATE_TEST_SUITE_P(Models, EveryFile, testing::ValuesIn(all_sizes()), name_of_size);

// The first size of each family.
std::vector<Named> all_families() {
  std::vector<Named> first;
  for (const Family& family : families()) first.push_back({&family, &family.sizes.front()});
  return first;
}

class EveryFamily : public testing::TestWithParam<Named> {};

std::vector<TensorView> tensors_of(const ModelSpec& spec) {
  std::vector<TensorView> tensors;
  for (const auto& [name, tensor] : train::named_state(*sketch_model(spec)))
    tensors.push_back({name, DType::f32, tensor.sizes().vec(), {}});
  return tensors;
}

TEST_P(EveryFamily, IsToldByItsTensors) {
  const ModelSpec spec = resolve_model(GetParam().size->name);
  std::vector<TensorView> tensors = tensors_of(spec);
  const auto sizes = train::sizes_that_fit(tensors);
  ASSERT_FALSE(sizes.empty());
  EXPECT_EQ(sizes.front(), spec.name);
  for (const std::string& size : sizes)
    EXPECT_EQ(first_difference(resolve_model(size).settings, spec.settings), "") << size;
  tensors.pop_back();
  tensors.front().shape.push_back(1);
  EXPECT_TRUE(train::sizes_that_fit(tensors).empty());
}

// The same tensors, but other pictures: only the user knows which.
TEST(Sizes, ThatArePreparedDifferentlyAreToldApart) {
  EXPECT_EQ(train::sizes_that_fit(tensors_of(resolve_model("deit_tiny_patch16_224"))),
            (std::vector<std::string>{"vit_tiny_patch16_224", "deit_tiny_patch16_224"}));
}

// 64 pictures by heart within 20 seconds of processor time.
TEST_P(EveryFamily, OverfitsSixtyFourPictures) {
  Value small;
  small.set("classes", 10);
  const ModelSpec spec = tiny_spec(GetParam(), small);
  data::SourceConfig config;
  config.path = "shapes:train=64,val=10";
  const auto source = data::open_source(config, data::Split::train);
  data::Preprocess preprocess;
  preprocess.size = tiny_side(spec);
  data::Loader loader(*source, data::make_eval_transform(preprocess), {.batch_size = 64, .shuffle = false});
  const tasks::Batch batch = tasks::to_device(*loader.next(), torch::kCPU, tasks::Precision::fp32);
  const auto task = tasks::make_classify({}, 10, false);
  const auto model = build_model(spec, 1);
  model->train();
  torch::optim::AdamW optimiser(model->parameters(), torch::optim::AdamWOptions(3e-3).weight_decay(0));
  const std::clock_t begin = std::clock();
  const auto seconds = [&] { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC; };
  double right = 0;
  uint64_t step = 0;
  for (; right < 1 && seconds() < 20; ++step) {
    const tasks::StepOutput output = task->step(*model, batch, {.seed = 1, .step = step});
    right = output.metrics.front().second.item<double>();
    optimiser.zero_grad();
    output.loss.backward();
    optimiser.step();
  }
  EXPECT_EQ(right, 1) << "after " << step << " steps";
  RecordProperty("steps", static_cast<int>(step));
}

std::string name_of_family(const testing::TestParamInfo<Named>& one) { return one.param.family->name; }
INSTANTIATE_TEST_SUITE_P(Models, EveryFamily, testing::ValuesIn(all_families()), name_of_family);

}  // namespace
}  // namespace tessera::models
