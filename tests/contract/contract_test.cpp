// What every registered size must do; a tiny form of each, no exceptions.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "nn/units_testing.h"
#include "tests/contract/tiny.h"

namespace tessera::models {
namespace {

class EverySize : public testing::TestWithParam<Named> {};

torch::Tensor images(int64_t batch, int64_t height, int64_t width) {
  torch::manual_seed(5);
  return torch::randn({batch, 3, height, width});
}

// Output and all gradients of a fixed scalar loss.
std::vector<torch::Tensor> output_and_gradients(Classifier& model, const torch::Tensor& x,
                                                const Context& context) {
  const torch::Tensor y = model.forward(x, context);
  torch::manual_seed(6);
  (y * torch::randn(y.sizes()).to(y.dtype())).sum().backward();
  std::vector<torch::Tensor> results{y.detach()};
  for (const torch::Tensor& parameter : model.backbone->parameters()) {
    results.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
    parameter.mutable_grad() = torch::Tensor();
  }
  return results;
}

TEST_P(EverySize, RunsAtTwoResolutions) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->eval();
  const int64_t side = tiny_side(spec);
  for (const auto& [height, width] : {std::pair{side, side}, {side, side / 2 * 3}}) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor x = images(2, height, width), y = model->forward(x);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 5}));
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    EXPECT_EQ(model->backbone->embed(x).sizes(), (std::vector<int64_t>{2, model->backbone->embed_width()}));
    EXPECT_GT(model->macs(height, width), 0);
  }
  EXPECT_GT(model->macs(side, side / 2 * 3), model->macs(side, side));
}

TEST_P(EverySize, GivesMapsOfEveryBlock) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->eval();
  const torch::NoGradGuard no_grad;
  const int64_t side = tiny_side(spec), last = model->backbone->block_count() - 1;
  const auto maps = model->backbone->features(images(2, side, side / 2 * 3), {last, 0});
  ASSERT_EQ(maps.size(), 2u);
  for (const torch::Tensor& map : maps) {
    EXPECT_EQ(map.dim(), 4);
    EXPECT_EQ(map.size(0), 2);
    if (!spec.settings.find("ada_pool") || spec.settings.find("ada_pool")->as_array().empty()) {
      EXPECT_GT(map.size(3), map.size(2));  // 3 to 2 but where patches overlap
    }
    EXPECT_TRUE(map.isfinite().all().item<bool>());
  }
  EXPECT_ANY_THROW(model->backbone->features(images(1, side, side), {last + 1}));
}

// AIM's probe reads the blocks before the last norm, which its pre-training uses.
bool unread_by_the_head(const ModelSpec& spec, const std::string& name) {
  return spec.family == "aim" && name.starts_with("norm.");
}

// VanillaNet has no branches to drop.
Value dropping(const Named& named, double rate) {
  Value drop;
  const Value full = resolve_model(named.size->name).settings;
  if (full.find("drop_path")) drop.set("drop_path", rate);
  if (full.find("drop_path_decay") && rate > 0.9) drop.set("drop_path_decay", false);
  return drop;
}

TEST_P(EverySize, EveryParameterGetsAGradient) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->to(torch::kFloat64);
  model->backbone->train();
  const int64_t side = tiny_side(spec);
  const auto results = output_and_gradients(*model, images(2, side, side).to(torch::kFloat64), {});
  const auto parameters = model->backbone->named_parameters().pairs();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = results[i + 1];
    if (unread_by_the_head(spec, parameters[i].first)) continue;
    ASSERT_TRUE(gradient.defined()) << parameters[i].first;
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << parameters[i].first;
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameters[i].first;
  }
}

TEST_P(EverySize, SettingsComeBackAsTheyWere) {
  for (const ModelSpec& spec : {resolve_model(GetParam().size->name), tiny_spec(GetParam())}) {
    EXPECT_EQ(first_difference(GetParam().family->resolve(spec.settings), spec.settings), "");
    EXPECT_EQ(spec.family, GetParam().family->name);
  }
  Value wrong;
  wrong.set("dpeth", 3);
  EXPECT_ANY_THROW(resolve_model(GetParam().size->name, wrong));
}

TEST_P(EverySize, CheckpointingAndDropPathChangeNothing) {
  const ModelSpec spec = tiny_spec(GetParam(), dropping(GetParam(), 0.4));
  const auto model = build_classifier(spec, 1);
  model->backbone->train();
  const int64_t side = tiny_side(spec);
  const torch::Tensor x = images(4, side, side);
  const Context context{.seed = 3, .step = 7};
  const auto plain = output_and_gradients(*model, x, context);
  model->backbone->set_checkpointing(true);
  const auto again = output_and_gradients(*model, x, context);
  ASSERT_EQ(plain.size(), again.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), again[i].defined()) << i;
    if (plain[i].defined()) {
      EXPECT_TRUE(torch::equal(plain[i], again[i])) << i;
    }
  }
}

// ZeRO's stage 3 frees the weights of blocks between their passes.
TEST_P(EverySize, BlocksReadTheirWeightsInTheirPassesAlone) {
  const ModelSpec spec = tiny_spec(GetParam(), dropping(GetParam(), 0.4));
  const auto model = build_classifier(spec, 1);
  model->backbone->train();
  const int64_t side = tiny_side(spec);
  const torch::Tensor x = images(4, side, side);
  const Context context{.seed = 3, .step = 7};
  const auto plain = output_and_gradients(*model, x, context);
  for (const bool recompute : {false, true}) {
    model->backbone->set_checkpointing(recompute);
    nn::PoisonedUnits poisoned(*model->backbone);
    const nn::UnitScope units(&poisoned);
    const auto again = output_and_gradients(*model, x, context);
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(plain[i].defined(), again[i].defined()) << i;
      if (plain[i].defined()) {
        EXPECT_TRUE(torch::equal(plain[i], again[i])) << i;
      }
    }
  }
}

// Whether the parameter is inside a block's branch, as families call those; DALL-E's encoder calls its first and
// last layers so too. Vision-RWKV's first block has a norm of its input.
bool in_a_block(const std::string& name) {
  for (const char* other : {"blocks.input.", "blocks.output.", "id_path.", ".ln0."})
    if (name.find(other) != std::string::npos) return false;
  return name.find("blocks.") != std::string::npos || name.starts_with("layer");
}

bool has_batch_norms(const Classifier& model) {
  const std::vector<std::string> names = model.backbone->named_buffers().keys();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with("running_mean"); });
}

// What a sample's branch adds is not computed where the sample is dropped: no parameter of it gets a
// gradient. Batch norms see all samples, so there the gradient is zero; and the shortcut is no part of it.
TEST_P(EverySize, DroppedBranchesAreNotComputed) {
  const Value drop = dropping(GetParam(), 0.999999);
  if (!drop.find("drop_path")) GTEST_SKIP() << "no branches";
  const ModelSpec spec = tiny_spec(GetParam(), drop);
  const auto model = build_classifier(spec, 1);
  model->backbone->train();
  const int64_t side = tiny_side(spec);
  const torch::Tensor y = model->forward(images(2, side, side), {.seed = 3, .step = 7});
  y.square().sum().backward();
  int64_t inside = 0;
  const bool batch_norms = has_batch_norms(*model);
  for (const auto& entry : model->backbone->named_parameters())
    if (in_a_block(entry.key()) && entry.key().find("downsample") == std::string::npos &&
        entry.key().find("res_scale") == std::string::npos) {
      ++inside;
      const torch::Tensor& gradient = entry.value().grad();
      const bool zero = batch_norms && gradient.defined() && gradient.abs().max().item<double>() == 0;
      EXPECT_TRUE(zero || !gradient.defined()) << entry.key();
    }
  EXPECT_GT(inside, 0);
}

// Every block's output, every layer's attention or state, and the vector before the head, by name; looking at
// them changes nothing.
// What attention multiplies, beside what it gives.
bool is_attention_input(const std::string& name) {
  for (const char* end : {".queries", ".keys", ".rotation", ".key_rotation"})
    if (name.ends_with(end)) return true;
  return false;
}

TEST_P(EverySize, NamesItsInnerPlaces) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->to(torch::kFloat64);
  model->backbone->eval();
  const torch::NoGradGuard no_grad;
  const int64_t side = tiny_side(spec);
  const torch::Tensor x = images(2, side, side / 2 * 3).to(torch::kFloat64);
  Taps taps;
  const torch::Tensor y = model->forward(x, {.taps = &taps});
  EXPECT_TRUE(torch::allclose(y, model->forward(x)));
  EXPECT_TRUE(torch::allclose(taps.kept.at("embed"), model->backbone->embed(x)));
  int64_t outputs = 0, layers = 0;
  const std::set<std::string> without = {"convnext",   "resnet", "dalle", "poolformer",
                                         "vanillanet", "vim",    "vrwkv"};
  const bool attends = !without.contains(spec.family);
  for (const auto& [name, value] : taps.kept) {
    EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
    if (name.ends_with(".attention") || name.ends_with(".state.c")) {
      ++layers;
      EXPECT_EQ(value.dim(), 4) << name;
    } else if (name.starts_with("blocks.") && name.find(".state.") == std::string::npos &&
               name.find(".mixing") == std::string::npos && !is_attention_input(name)) {
      ++outputs;
    }
  }
  EXPECT_GE(outputs, model->backbone->block_count());
  if (attends) {
    EXPECT_GE(layers, outputs);  // a pair of Vision-LSTM 2 is one output of two layers
  }
}

TEST_P(EverySize, SeedAndNameDecideTheWeights) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto first = build_classifier(spec, 1);
  torch::manual_seed(99);  // must not matter
  const auto same = build_classifier(spec, 1), other = build_classifier(spec, 2);
  bool differs = false;
  auto names = first->backbone->named_parameters().pairs(),
       twins = same->backbone->named_parameters().pairs();
  const auto others = other->backbone->parameters();
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i].first, twins[i].first);
    EXPECT_TRUE(torch::equal(names[i].second, twins[i].second)) << names[i].first;
    differs = differs || !torch::equal(names[i].second, others[i]);
  }
  EXPECT_TRUE(differs);
}

TEST_P(EverySize, WeightsMoveByName) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto from = build_classifier(spec, 1), to = build_classifier(spec, 2);
  const int64_t side = tiny_side(spec);
  const torch::NoGradGuard no_grad;
  from->backbone->eval();
  to->backbone->eval();
  const torch::Tensor x = images(2, side, side);
  EXPECT_FALSE(torch::equal(from->forward(x), to->forward(x)));
  auto targets = to->backbone->named_parameters();
  for (const auto& entry : from->backbone->named_parameters()) targets[entry.key()].copy_(entry.value());
  EXPECT_TRUE(torch::equal(from->forward(x), to->forward(x)));
}

TEST_P(EverySize, TakesANewHead) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->eval();
  const torch::NoGradGuard no_grad;
  const int64_t side = tiny_side(spec), before = count_parameters(*model->backbone);
  const torch::Tensor x = images(2, side, side), read = model->backbone->embed(x), scores = model->forward(x);
  model->reset_head(7);
  EXPECT_EQ(model->forward(x).sizes(), (std::vector<int64_t>{2, 7}));
  model->reset_head(0);
  EXPECT_EQ(model->forward(x).size(1), model->backbone->embed_width());
  model->reset_head(5);
  EXPECT_EQ(count_parameters(*model->backbone), before);
  EXPECT_TRUE(torch::equal(model->forward(x), scores));  // drawn from the model's own seed
  EXPECT_TRUE(torch::equal(model->backbone->embed(x), read));
}

TEST_P(EverySize, RunsUnderBfloat16Autocast) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->train();
  const int64_t side = tiny_side(spec);
  // VanillaNet's head norms scores over the batch: of two, they would be -1 and 1.
  const torch::Tensor x = images(spec.family == "vanillanet" ? 32 : 2, side, side);
  const torch::Tensor exact = model->forward(x).detach();
  at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  const torch::Tensor rounded = model->forward(x);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  rounded.to(torch::kFloat32).sum().backward();
  // Statistics of the eight cells that are left of two images make roundings larger.
  const double share = has_batch_norms(*model) ? 0.25 : 0.1;
  EXPECT_LE((rounded.to(torch::kFloat32) - exact).abs().max().item<double>(),
            share * exact.abs().max().item<double>() + 1e-3);
  for (const auto& entry : model->backbone->named_parameters())
    EXPECT_TRUE(unread_by_the_head(spec, entry.key()) ||
                (entry.value().grad().defined() && entry.value().grad().isfinite().all().item<bool>()))
        << entry.key();
}

TEST_P(EverySize, RefusesAnImageItCannotTake) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  const int64_t side = tiny_side(spec);
  EXPECT_ANY_THROW(model->forward(torch::zeros({1, 4, side, side})));
  EXPECT_ANY_THROW(model->forward(torch::zeros({3, side, side})));
}

INSTANTIATE_TEST_SUITE_P(Models, EverySize, testing::ValuesIn(all_sizes()),
                         [](const testing::TestParamInfo<Named>& one) { return one.param.size->name; });

}  // namespace
}  // namespace tessera::models
