// What every registered size must give back from a file, and what every family must learn.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "data/loading/loader.h"
#include "io/files/io_testing.h"
#include "nn/layer_division_testing.h"
#include "nn/units_testing.h"
#include "open/load.h"
#include "open/open_task.h"
#include "tasks/base/registry.h"
#include "tests/contract/tiny.h"

namespace tessera::models {
namespace {

class EveryFile : public TemporaryFolder, public testing::WithParamInterface<Named> {};

TEST_P(EveryFile, HoldsSettingsAndWeights) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  train::WeightsInfo info;
  info.model = spec;
  train::save_weights(path("m.safetensors"), named_state(*model->backbone), info);
  const train::OpenedTask opened = train::open_task(path("m.safetensors"));
  EXPECT_EQ(first_difference(opened.info.model.settings, spec.settings), "");
  const torch::NoGradGuard no_grad;
  model->backbone->eval();
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({2, 3, tiny_side(spec), tiny_side(spec)});
  EXPECT_TRUE(torch::equal(opened.task->classifier()->forward(x), model->forward(x)));
}

std::string name_of_size(const testing::TestParamInfo<Named>& one) { return one.param.size->name; }
INSTANTIATE_TEST_SUITE_P(Models, EveryFile, testing::ValuesIn(all_sizes()), name_of_size);

// The first size of each family.
std::vector<Named> all_families() {
  std::vector<Named> first;
  for (const Family& family : families())
    if (!generates(family)) first.push_back({&family, &family.sizes.front()});
  return first;
}

class EveryFamily : public testing::TestWithParam<Named> {};

std::vector<TensorView> tensors_of(const ModelSpec& spec) {
  std::vector<TensorView> tensors;
  for (const auto& [name, tensor] : named_state(*meta_classifier(spec)->backbone))
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
  tensors.front().shape.push_back(2);
  EXPECT_TRUE(train::sizes_that_fit(tensors).empty());
}

// The same tensors, but other pictures: only the user knows which.
TEST(Sizes, ThatArePreparedDifferentlyAreToldApart) {
  EXPECT_EQ(train::sizes_that_fit(tensors_of(resolve_model("deit_tiny_patch16_224"))),
            (std::vector<std::string>{"vit_tiny_patch16_224", "deit_tiny_patch16_224"}));
}

// Tensor parallelism divides attentions, MLPs and mLSTM layers; other layers are whole in each process.
TEST_P(EveryFamily, ProcessesDivideItsLayers) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto modules = build_classifier(spec, 1)->backbone->modules();
  if (std::ranges::none_of(modules,
                           [](const auto& module) { return dynamic_cast<nn::DividedLayer*>(module.get()); }))
    return;
  const int64_t side = tiny_side(spec);
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({2, 3, side, side}, torch::kFloat64);
  for (const bool recompute : {false, true}) {
    const auto make = [&] {
      auto backbone = build_classifier(spec, 1)->backbone;
      backbone->to(torch::kFloat64);
      backbone->train();
      backbone->set_checkpointing(recompute);
      return backbone;
    };
    const int64_t sums = nn::expect_divides(2, make, [&](torch::nn::Module& module) {
      return dynamic_cast<Backbone&>(module).embed(x, {.seed = 3, .step = 7});
    });
    EXPECT_GT(sums, 0);
  }
}

// What a pipeline relies on: the later blocks need nothing of the earlier ones but the output of the last.
TEST_P(EveryFamily, IsAChainOfBlocks) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto backbone = build_classifier(spec, 1)->backbone;
  const size_t blocks = nn::units_of(*backbone).size();
  backbone->to(torch::kFloat64);
  backbone->train();
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({2, 3, tiny_side(spec), tiny_side(spec)}, torch::kFloat64);
  const auto embed = [&](nn::CutUnits&& units) {
    const nn::UnitScope scope(&units);
    const torch::Tensor features = backbone->embed(x, {.seed = 3, .step = 7});
    EXPECT_EQ(units.count(), blocks);
    return std::pair(features, units.kept());
  };
  const torch::NoGradGuard no_grad;
  for (size_t cut = 1; cut < blocks; ++cut) {
    const auto [whole, output] = embed(nn::CutUnits(cut));
    EXPECT_TRUE(torch::equal(embed(nn::CutUnits(cut, output)).first, whole)) << "cut before block " << cut;
  }
}

// 64 images by heart within 400 steps; a limit in seconds would fail on a busy machine.
TEST_P(EveryFamily, OverfitsSixtyFourPictures) {
  Value small;
  small.set("classes", 10);
  const ModelSpec spec = tiny_spec(GetParam(), small);
  data::SourceConfig config;
  config.path = "shapes:train=64,val=10";
  data::Preprocess preprocess;
  preprocess.size = tiny_side(spec);
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(tasks::resolve_task({}));
  setup.model = spec;
  setup.seed = 1;
  setup.train = data::open_source(config, data::Split::train);
  setup.preprocess = preprocess;
  const auto task = tasks::find_task("classify").make(setup);
  data::Loader loader(*setup.train,
                      data::join_transforms({data::make_eval_transform(preprocess),
                                             data::make_label_transform(10, /*multi_label=*/false)}),
                      {.batch_size = 64, .shuffle = false});
  tasks::Inputs batch;
  batch.streams.push_back(tasks::to_device(*loader.next(), "train", torch::kCPU, tasks::Precision::fp32));
  tasks::set_training(task->parts(), true);
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : tasks::named_parameters(task->parts()))
    parameters.push_back(parameter);
  torch::optim::AdamW optimiser(parameters, torch::optim::AdamWOptions(3e-3).weight_decay(0));
  double right = 0;
  uint64_t step = 0;
  for (; right < 1 && step < 400; ++step) {
    const tasks::Loss loss = task->loss(batch, {.seed = 1, .step = step}, tasks::Collective::alone());
    right = loss.terms.front().sum.item<double>() / loss.terms.front().weight;
    optimiser.zero_grad();
    (loss.sum / task->weight(batch)).backward();
    optimiser.step();
  }
  EXPECT_EQ(right, 1) << "after " << step << " steps";
  RecordProperty("steps", static_cast<int>(step));
}

std::string name_of_family(const testing::TestParamInfo<Named>& one) { return one.param.family->name; }
INSTANTIATE_TEST_SUITE_P(Models, EveryFamily, testing::ValuesIn(all_families()), name_of_family);

}  // namespace
}  // namespace tessera::models
