#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "nn/attention.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/mlstm.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/relative_position.h"
#include "nn/rope_scaling.h"
#include "nn/units.h"
#include "ops/inference.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

void fill_all(torch::nn::Module& module, uint64_t seed) {
  initialise(module, seed, [](const std::string&, const Tensor&, const Filler& fill) { fill.normal(0.3); });
}

// ---- first weights

TEST(Initialise, DependsOnSeedAndNameAlone) {
  MlpImpl wide(8, 16), narrow(8, 16);
  const int before = num_threads();
  set_num_threads(1);
  fill_all(wide, 4);
  set_num_threads(3);
  torch::manual_seed(1);
  fill_all(narrow, 4);
  set_num_threads(before);
  EXPECT_TRUE(torch::equal(wide.fc1->weight, narrow.fc1->weight));
  EXPECT_FALSE(torch::equal(wide.fc1->weight.flatten(), wide.fc2->weight.flatten()));  // by name
  fill_all(narrow, 5);
  EXPECT_FALSE(torch::equal(wide.fc1->weight, narrow.fc1->weight));
}

TEST(Initialise, DistributionsAreWhatTheySay) {
  const Tensor x = torch::empty({200, 500});
  const auto moments = [&](double mean, double deviation) {
    EXPECT_NEAR(x.mean().item<double>(), mean, 4 * deviation / 300);
    EXPECT_NEAR(x.std().item<double>(), deviation, 0.02 * deviation);
  };
  const Filler fill(x, 1, "x");
  fill.normal(0.5);
  moments(0, 0.5);
  fill.truncated_normal(2);  // truncated at one deviation: 0.5396 of it remains
  moments(0, 2 * 0.5396);
  EXPECT_LE(x.abs().max().item<double>(), 2);
  fill.xavier_uniform();
  moments(0, std::sqrt(2.0 / 700));
  fill.fan_in_uniform(12);
  EXPECT_LE(x.abs().max().item<double>(), 1 / std::sqrt(12.0));
  moments(0, 1 / 6.0);
  const Tensor line = torch::empty({4});
  Filler(line, 1, "line").linspace(3, 6);
  EXPECT_TRUE(torch::allclose(line, torch::tensor({3.0f, 4.0f, 5.0f, 6.0f})));
}

TEST(ShapesOnly, TakesNoMemory) {
  const ShapesOnly scope;
  LinearImpl huge(1 << 20, 1 << 20);
  EXPECT_TRUE(huge.weight.is_meta());
  EXPECT_EQ(huge.macs(), int64_t{1} << 40);
}

TEST(ParameterType, HoldsWithinItsScope) {
  {
    const ParameterType scope(torch::kBFloat16);
    EXPECT_EQ(LinearImpl(2, 3).weight.scalar_type(), torch::kBFloat16);
    {
      const ParameterType inner(torch::kFloat64);
      EXPECT_EQ(LayerNormImpl(2).weight.scalar_type(), torch::kFloat64);
    }
    EXPECT_EQ(LinearImpl(2, 3).bias.scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(LinearImpl(2, 3).weight.scalar_type(), torch::kFloat32);
}

// ---- checkpointing

TEST(Checkpoint, GivesTheSameValuesAndGradients) {
  MlpImpl mlp(6, 12), unused(6, 12);
  fill_all(mlp, 1);
  auto parameters = mlp.parameters();
  parameters.push_back(unused.fc1->weight);  // not used
  parameters[0].set_requires_grad(false);    // frozen
  const Tensor x = torch::randn({5, 6}).requires_grad_();
  const auto body = [&](const Tensor& in) { return mlp.forward(in).square(); };
  body(x).sum().backward();
  const Tensor dx = x.grad().clone(), dw = mlp.fc2->weight.grad().clone();
  x.mutable_grad() = mlp.fc2->weight.mutable_grad() = Tensor();
  int calls = 0;
  const Tensor y = checkpoint([&](const Tensor& in) { return ++calls, body(in); }, x, parameters);
  EXPECT_EQ(calls, 1);
  y.sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(torch::equal(y, body(x)));
  EXPECT_TRUE(torch::equal(x.grad(), dx));
  EXPECT_TRUE(torch::equal(mlp.fc2->weight.grad(), dw));
  EXPECT_FALSE(mlp.fc1->weight.grad().defined());
  EXPECT_FALSE(unused.fc1->weight.grad().defined());
}

TEST(Checkpoint, RecomputesInThePrecisionOfTheForwardPass) {
  LinearImpl linear(4, 4);
  fill_all(linear, 1);
  const Tensor x = torch::randn({2, 4}).requires_grad_();
  std::vector<torch::ScalarType> seen;
  at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        const Tensor out = linear.forward(in);
        seen.push_back(out.scalar_type());
        return out;
      },
      x, linear.parameters());
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector<torch::ScalarType>{torch::kBFloat16, torch::kBFloat16}));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
}

// The next step's first pass does not read the weights rounded in the second pass.
TEST(Checkpoint, RoundedWeightsDoNotOutliveTheStep) {
  const Tensor weight = torch::ones({4, 4}).requires_grad_(), x = torch::ones({1, 4}).requires_grad_();
  const auto step = [&] {
    at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    const Tensor y = checkpoint([&](const Tensor& in) { return torch::linear(in, weight); }, x, {weight});
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    y.sum().backward();
    return y.sum().item<double>();
  };
  EXPECT_EQ(step(), 16);
  {
    const torch::NoGradGuard no_grad;
    Tensor(weight).mul_(2);
  }
  EXPECT_EQ(step(), 32);
}

TEST(Residual, IsSummedInFloatUnderAutocast) {
  const Tensor x = torch::ones({2, 3}, torch::kBFloat16);
  const auto branch = [](const Tensor& in, const Epilogue& epilogue) {
    return epilogue.residual.defined()
               ? epilogue.residual + torch::full_like(in, 1e-3).to(epilogue.residual.scalar_type())
               : torch::full_like(in, 1e-3);
  };
  const Context context{};
  EXPECT_EQ(residual(x, {}, 0, false, 0, context, branch).scalar_type(), torch::kBFloat16);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  const Tensor y = residual(x, {}, 0, false, 0, context, branch);
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  EXPECT_EQ(y.scalar_type(), torch::kFloat32);
  EXPECT_GT(y.min().item<double>(), 1);
}

// ---- layers

TEST(PatchEmbed, IsAConvolution) {
  PatchEmbedImpl embed(4, 6);
  fill_all(embed, 2);
  const Tensor x = torch::randn({2, 3, 8, 12});
  const auto parameters = embed.named_parameters();
  const Tensor want =
      torch::conv2d(x, parameters["proj.weight"], parameters["proj.bias"], 4).permute({0, 2, 3, 1});
  EXPECT_TRUE(torch::allclose(embed.forward(x), want, 1e-5, 1e-5));
  EXPECT_EQ(embed.macs(8, 12), 6 * 6 * 48);
  EXPECT_ANY_THROW(embed.forward(torch::zeros({1, 3, 8, 10})));
  PatchEmbedImpl overlapping(4, 6, 2);
  EXPECT_EQ(overlapping.forward(x).sizes(), (std::vector<int64_t>{2, 3, 5, 6}));
  EXPECT_EQ(overlapping.macs(8, 12), 15 * 6 * 48);
}

TEST(Norms, AreTheirFormulas) {
  const Tensor x = torch::randn({3, 5}, torch::kFloat64) * 4 + 1;
  LayerNormImpl residual(5, {.eps = 1e-3, .bias = false, .residual = true});
  residual.to(torch::kFloat64);
  const Tensor centred = x - x.mean(-1, true), variance = centred.square().mean(-1, true);
  EXPECT_TRUE(torch::allclose(residual.forward(x), centred / (variance + 1e-3).sqrt()));
  EXPECT_EQ(residual.parameters().size(), 1u);
  RmsNormImpl rms(5, 1e-3);
  rms.to(torch::kFloat64);
  EXPECT_TRUE(torch::allclose(rms.forward(x), x / (x.square().mean(-1, true) + 1e-3).sqrt()));
}

TEST(Attention, TapsItsWeights) {
  AttentionImpl attention(8, 2);
  fill_all(attention, 3);
  const Tensor x = torch::randn({2, 5, 8});
  Taps taps;
  const Tensor y = attention.forward(x, {.taps = &taps, .name = "here"});
  const Tensor weights = taps.kept.at("here.attention");
  EXPECT_EQ(weights.sizes(), (std::vector<int64_t>{2, 2, 5, 5}));
  EXPECT_TRUE(torch::allclose(weights.sum(-1), torch::ones({2, 2, 5})));
  EXPECT_TRUE(torch::allclose(attention.forward(x), y, 1e-4, 1e-5));
  const Tensor order = torch::tensor({3, 1, 4, 0, 2});  // tokens have no inherent order
  EXPECT_TRUE(
      torch::allclose(attention.forward(x.index_select(1, order)), y.index_select(1, order), 1e-4, 1e-5));
}

// Heads may be narrower or wider than their share of the width (timm's attn_head_dim).
TEST(Attention, HeadsHaveAWidthOfTheirOwn) {
  torch::manual_seed(4);
  AttentionImpl attention(8, 2, /*qkv_bias=*/true, /*qk_norm=*/false, /*proj_bias=*/true, /*head_dim=*/3);
  const auto parameters = attention.named_parameters();
  EXPECT_EQ(parameters["qkv.weight"].sizes(), (std::vector<int64_t>{18, 8}));
  EXPECT_EQ(parameters["proj.weight"].sizes(), (std::vector<int64_t>{8, 6}));
  const torch::Tensor x = torch::randn({2, 5, 8});
  const auto qkv = torch::linear(x, parameters["qkv.weight"], parameters["qkv.bias"])
                       .view({2, 5, 3, 2, 3})
                       .permute({2, 0, 3, 1, 4});
  const torch::Tensor shares = (qkv[0].matmul(qkv[1].transpose(-1, -2)) / std::sqrt(3.0)).softmax(-1);
  const torch::Tensor want = torch::linear(shares.matmul(qkv[2]).transpose(1, 2).flatten(2),
                                           parameters["proj.weight"], parameters["proj.bias"]);
  EXPECT_TRUE(torch::allclose(attention.forward(x), want, 1e-5, 1e-6));
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(attention.forward(x), want, 1e-5, 1e-6));
}

TEST(Attention, ExtrasAreWhatTheySay) {
  const Tensor q = torch::randn({2, 3, 5, 8}), k = torch::randn({2, 3, 5, 8}), v = torch::randn({2, 3, 5, 8});
  const Tensor weights = torch::softmax(torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(8.0), -1);
  const Tensor lower = torch::ones({5, 5}).tril();
  EXPECT_TRUE(torch::allclose(attend(q, k, v), torch::matmul(weights, v), 1e-4, 1e-5));
  EXPECT_TRUE(
      torch::allclose(attend(q, k, v, {.future_weight = 0}), torch::matmul(weights * lower, v), 1e-4, 1e-5));
  const Tensor renormalised = weights * lower / (weights * lower).sum(-1, true);
  const Tensor causal = attend(q, k, v, {.causal = true});
  EXPECT_TRUE(torch::allclose(causal, torch::matmul(renormalised, v), 1e-4, 1e-5));
  const Tensor bias = (1 - lower) * -1e9;
  EXPECT_TRUE(torch::allclose(attend(q, k, v, {.bias = bias}), causal, 1e-4, 1e-5));
  Taps taps;  // the same values with taps on the weights
  EXPECT_TRUE(
      torch::allclose(attend(q, k, v, {.causal = true, .taps = &taps, .name = "a"}), causal, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(taps.kept.at("a.attention"), renormalised, 1e-4, 1e-5));
}

// A layer with one direction and the same weights for all directions.
MlstmLayer walking(const Traversal& direction, MlstmConv conv) {
  MlstmLayer layer(
      MlstmLayerOptions{.width = 8, .inner = 16, .heads = 2, .conv = conv, .directions = {direction}});
  fill_all(*layer, 3);
  layer->to(torch::kFloat64);
  return layer;
}

TEST(MlstmLayer, TapsTheStateOfEachDirection) {
  MlstmLayer layer(
      MlstmLayerOptions{.width = 8, .inner = 16, .heads = 2, .directions = {{}, {.reversed = true}}});
  fill_all(*layer, 3);
  const Tensor x = torch::randn({2, 6, 8});
  const TokenGrid grid{2, 3};
  Taps taps;
  EXPECT_TRUE(
      torch::allclose(layer->forward(x, grid, {}, &taps, "here"), layer->forward(x, grid), 1e-4, 1e-5));
  EXPECT_EQ(taps.kept.size(), 8u);  // three states and the parallel form's matrix, per direction
  EXPECT_EQ(taps.kept.at("here.mixing_rev").sizes(), (std::vector<int64_t>{2, 2, 6, 6}));
  EXPECT_EQ(taps.kept.at("here.state.c").sizes(), (std::vector<int64_t>{2, 2, 8, 8}));
  EXPECT_EQ(taps.kept.at("here.state_rev.n").sizes(), (std::vector<int64_t>{2, 2, 8}));
  EXPECT_EQ(taps.kept.at("here.state.m").sizes(), (std::vector<int64_t>{2, 2}));
}

TEST(MlstmLayer, ReversedIsTheFlippedSequence) {
  for (const MlstmConv conv : {MlstmConv::grid, MlstmConv::sequence, MlstmConv::causal, MlstmConv::none}) {
    const Tensor x = torch::randn({2, 6, 8}, torch::kFloat64);
    MlstmLayer back = walking({.reversed = true}, conv), forth = walking({}, conv);
    EXPECT_TRUE(torch::allclose(back->forward(x, {2, 3}), forth->forward(x.flip(1), {2, 3}).flip(1)))
        << static_cast<int>(conv);
    EXPECT_FALSE(torch::allclose(back->forward(x, {2, 3}), forth->forward(x, {2, 3})))
        << static_cast<int>(conv);
  }
}

// Walking in another direction equals walking the transformed image.
TEST(MlstmLayer, DirectionsAreThoseOfTheTransformedImage) {
  const Tensor image = torch::randn({2, 3, 4, 8}, torch::kFloat64);  // rows, columns
  const auto flat = [](const Tensor& grid) { return grid.reshape({grid.size(0), -1, grid.size(3)}); };
  for (const MlstmConv conv : {MlstmConv::grid, MlstmConv::causal}) {
    MlstmLayer plain = walking({}, conv);
    for (const Traversal& direction : traversals(8)) {
      const auto transform = [&](Tensor grid) {
        if (direction.mirrored) grid = grid.flip(2);
        if (direction.columns) grid = grid.transpose(1, 2);
        return direction.reversed ? grid.flip({1, 2}) : grid;
      };
      const Tensor transformed = transform(image);
      const TokenGrid grid{transformed.size(1), transformed.size(2)};
      const Tensor want = plain->forward(flat(transformed), grid).view(transformed.sizes());
      const Tensor got = walking(direction, conv)->forward(flat(image), {3, 4}).view(image.sizes());
      EXPECT_TRUE(torch::allclose(transform(got), want)) << static_cast<int>(conv) << " " << direction.name();
    }
  }
}

TEST(MlstmLayer, DirectionsInOneLayerAreSummed) {
  MlstmLayer both(MlstmLayerOptions{
      .width = 8, .inner = 16, .heads = 2, .proj_bias = false, .directions = traversals(2)});
  MlstmLayer there = walking({}, MlstmConv::grid), back = walking({.reversed = true}, MlstmConv::grid);
  both->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  auto theirs = there->named_parameters(), others = back->named_parameters();
  for (auto& entry : both->named_parameters()) {
    std::string name = entry.key();
    const size_t suffix = name.find("_rev");
    if (suffix != std::string::npos) name.erase(suffix, 4);
    entry.value().copy_((suffix != std::string::npos ? others : theirs)[name]);
  }
  for (auto* parameters : {&theirs, &others})  // absent from `both`
    for (auto& entry : *parameters)
      if (entry.key().find("proj") != std::string::npos && ends_with(entry.key(), ".bias"))
        entry.value().zero_();
  others["mlstm_cell.outnorm.bias"].zero_();
  const Tensor x = torch::randn({2, 6, 8}, torch::kFloat64);
  EXPECT_TRUE(
      torch::allclose(both->forward(x, {2, 3}), there->forward(x, {2, 3}) + back->forward(x, {2, 3})));
}

// A class token in the middle: the grid convolution skips it, the cell sees it at its position.
TEST(MlstmLayer, TokensOffTheGridKeepTheirPlaces) {
  const Tensor x = torch::randn({1, 7, 8}, torch::kFloat64);
  const TokenGrid grid{2, 3, {3}};
  for (const Traversal& direction : traversals(8)) {
    MlstmLayer layer = walking(direction, MlstmConv::grid);
    Tensor changed = x.clone();
    changed.select(1, 3).add_(1);
    const Tensor difference =
        (layer->forward(changed, grid) - layer->forward(x, grid)).abs().sum(-1).squeeze(0);
    // The token itself and later tokens of the walk: half of them, chosen by the walk.
    EXPECT_EQ((difference > 1e-12).sum().item<int64_t>(), 4) << direction.name();
    EXPECT_GT(difference[3].item<double>(), 1e-6);
  }
  EXPECT_ANY_THROW(walking({}, MlstmConv::grid)->forward(x, {2, 3}));
}

// Rounded inputs times rounded weights, for every context of the layer.
TEST(Quantised, LayersRoundTheirInputsAndWeights) {
  torch::manual_seed(0);
  const auto drawn = [](LinearImpl& layer, const QuantisedBits& bits = {.weights = 4, .activations = 3}) {
    const torch::NoGradGuard no_grad;
    layer.weight.normal_();
    if (layer.bias.defined()) layer.bias.normal_();
    layer.quantise(bits);
  };
  const torch::Tensor x = torch::randn({5, 8}), residual = torch::randn({5, 6}), scale = torch::rand({6});
  LinearImpl layer(8, 6);
  drawn(layer);
  layer.forward(x);  // sets the step size of the inputs
  const auto parameters = layer.named_parameters();
  const auto step = [&](const char* name) { return parameters[name].exp(); };
  EXPECT_TRUE(torch::allclose(step("input_log_step"), 2 * x.abs().mean() / std::sqrt(3.0)));
  const torch::Tensor steps = step("weight_log_step").unsqueeze(1);
  EXPECT_TRUE(
      torch::allclose(steps, 2 * layer.weight.abs().mean(std::vector<int64_t>{1}, true) / std::sqrt(7.0)));
  const auto rounded = [](const torch::Tensor& y, const torch::Tensor& s, double low, double high) {
    return (y / s).clamp(low, high).round() * s;
  };
  const auto expected = [&](const torch::Tensor& y) {
    return torch::linear(rounded(y, step("input_log_step"), -4, 3), rounded(layer.weight, steps, -8, 7),
                         layer.bias);
  };
  EXPECT_TRUE(torch::allclose(layer.forward(x), expected(x), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(layer.forward(4 * x, {.scale = scale, .residual = residual}),
                              residual + scale * expected(4 * x), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(layer.forward_gelu(x), torch::gelu(expected(x)), 1e-5, 1e-6));
  layer.forward(x).square().sum().backward();
  for (const auto& parameter : parameters)
    EXPECT_GT(parameter.value().grad().abs().max().item<double>(), 0) << parameter.key();

  // Without gradients, weights are rounded once, and int8 computes the same integers.
  const torch::NoGradGuard no_grad;
  for (const QuantisedBits bits : {QuantisedBits{4, 3}, {8, 8}, {3, 8}}) {
    LinearImpl small(8, 6);
    drawn(small, bits);
    small.forward(x);
    const auto all = [&] {
      return torch::cat({small.forward(2 * x, {.scale = scale, .residual = residual}),
                         small.forward_gelu(x).to(torch::kFloat32)});
    };
    const torch::Tensor want = [&] {
      const ops::InferenceScope composed({.fused = false});
      return all();
    }();
    EXPECT_TRUE(torch::allclose(all(), want, 1e-5, 1e-6));
    const ops::InferenceScope int8({.int8 = true});
    EXPECT_TRUE(torch::allclose(all().slice(0, 0, 5), want.slice(0, 0, 5), 1e-5, 1e-6)) << bits.weights;
    // GELU returns bfloat16, from a polynomial with errors of up to 8e-5.
    EXPECT_TRUE(torch::allclose(all(), want, 1.0 / 256, 1.6e-4)) << bits.weights;
  }

  // Composed, a layer of more bits than 8 stays in float.
  for (const QuantisedBits bits : {QuantisedBits{16, 8}, {8, 16}, {12, 4}}) {
    LinearImpl wide(8, 6);
    drawn(wide, bits);
    wide.forward(x);
    const auto composed = [&](bool int8) {
      const ops::InferenceScope scope({.fused = false, .int8 = int8});
      return wide.forward(2 * x);
    };
    EXPECT_TRUE(composed(true).equal(composed(false))) << bits.weights;
  }

  SwiGluImpl gated(8, 6, kImageLlamaNames);
  for (const auto& module : gated.children()) drawn(dynamic_cast<LinearImpl&>(*module));
  const auto part = [&](const char* name) {
    return std::dynamic_pointer_cast<LinearImpl>(gated.named_children()[name]);
  };
  EXPECT_TRUE(torch::allclose(
      gated.forward(x), part("fc2")->forward(torch::silu(part("fc1")->forward(x)) * part("fc3")->forward(x)),
      1e-5, 1e-6));
}

// Like torch's batch norm without parameters: outputs, gradients and running statistics.
TEST(BatchNorm, IsTorchsWithoutParameters) {
  BatchNorm norm(5);
  torch::Tensor mean = torch::zeros({5}), variance = torch::ones({5});
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor x = (torch::randn({7, 5}) * 3 + 2).requires_grad_();
    const torch::Tensor other = x.detach().clone().requires_grad_();
    const torch::Tensor weight = torch::randn({7, 5});
    const torch::Tensor want =
        torch::batch_norm(other, {}, {}, mean, variance, /*training=*/true, /*momentum=*/0.1, /*eps=*/1e-6,
                          /*cudnn_enabled=*/false);
    const torch::Tensor got = norm(x);
    EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-5)) << step;
    (got * weight).sum().backward();
    (want * weight).sum().backward();
    EXPECT_TRUE(torch::allclose(x.grad(), other.grad(), 1e-4, 1e-5)) << step;
    EXPECT_TRUE(torch::allclose(norm->running_mean, mean, 1e-5, 1e-6)) << step;
    EXPECT_TRUE(torch::allclose(norm->running_var, variance, 1e-5, 1e-6)) << step;
  }
  norm->eval();
  const torch::Tensor x = torch::randn({1, 5});
  EXPECT_TRUE(torch::allclose(norm(x), (x - mean) / (variance + 1e-6).sqrt(), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(norm->running_mean, mean, 1e-5, 1e-6));  // evaluation changes nothing
  norm->train();
  const torch::Tensor before = norm->running_var.clone();
  EXPECT_TRUE(torch::equal(norm(x), torch::zeros({1, 5})));  // one image has no variance
  EXPECT_TRUE(torch::equal(norm->running_var, before));
  EXPECT_TRUE(norm->parameters().empty());
}

}  // namespace
}  // namespace tessera::nn
