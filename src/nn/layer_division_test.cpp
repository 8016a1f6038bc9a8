// Layers that processes divide have the outputs and the mean gradients of whole ones, also with unequal shares.
#include "nn/layer_division_testing.h"

#include "nn/attention.h"
#include "nn/mlstm.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

// Returns a function that makes the module with drawn weights.
template <class Impl, class... Arguments>
MakeModule drawn_as(torch::ScalarType type, Arguments... arguments) {
  return [=] {
    auto module = std::make_shared<Impl>(arguments...);
    module->to(type);
    const torch::NoGradGuard no_grad;
    torch::manual_seed(5);
    for (Tensor& parameter : module->parameters()) parameter.normal_(0, 0.3);
    return module;
  };
}

template <class Impl, class... Arguments>
MakeModule drawn(Arguments... arguments) {
  return drawn_as<Impl>(torch::kFloat64, arguments...);
}

Tensor tokens(int64_t count = 6, int64_t width = 24) {
  torch::manual_seed(7);
  return torch::randn({2, count, width}, torch::kFloat64);
}

template <class Impl>
RunModule on(const Tensor& x, const Epilogue& epilogue = {}) {
  return [=](torch::nn::Module& module) { return dynamic_cast<Impl&>(module).forward(x, epilogue); };
}

TEST(LayerDivision, SharesCoverAllHeads) {
  ThreadDivision::Meeting meeting(4);
  for (const int64_t count : {4, 5, 7, 12}) {
    int64_t next = 0;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const nn::Share run = ThreadDivision(meeting, rank).share_of(count);
      EXPECT_EQ(run.first, next);
      EXPECT_GE(run.count, count / 4);
      next += run.count;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(LayerDivision, AttentionIsThatOfOneProcess) {
  const Tensor x = tokens(), residual = tokens() * 0.5, scale = torch::linspace(0.1, 1, 24, torch::kFloat64);
  const auto run = [&](const AttentionExtras& extras) -> RunModule {
    return [=](torch::nn::Module& module) {
      return dynamic_cast<AttentionImpl&>(module).forward(x, extras, {scale, residual});
    };
  };
  for (const int64_t processes : {2, 3}) {
    SCOPED_TRACE(processes);
    expect_divides(processes, drawn<AttentionImpl>(24, 3), run({}));
    expect_divides(processes, drawn<AttentionImpl>(24, 3, false, true), run({.causal = true}));
    expect_divides(processes, drawn<AttentionImpl>(24, 6),
                   run({.bias = torch::randn({6, 6, 6}, torch::kFloat64)}));
    expect_divides(processes, drawn<AttentionImpl>(24, 3),
                   run({.rotation = torch::randn({3, 6, 4}, torch::kFloat64)}));
    expect_divides(processes, drawn<AttentionImpl>(24, 3),
                   run({.rotation = torch::randn({6, 4}, torch::kFloat64)}));
  }
}

TEST(LayerDivision, FewerHeadsThanProcessesAreWhole) {
  const int64_t sums = expect_divides(
      3, drawn<AttentionImpl>(24, 2),
      [x = tokens()](torch::nn::Module& module) { return dynamic_cast<AttentionImpl&>(module).forward(x); });
  EXPECT_EQ(sums, 0);
}

TEST(LayerDivision, EveryMlpIsThatOfOneProcess) {
  const Tensor x = tokens();
  const Epilogue end{torch::linspace(0.1, 1, 24, torch::kFloat64), tokens() * 0.5};
  for (const int64_t processes : {2, 3}) {
    SCOPED_TRACE(processes);
    expect_divides(processes, drawn<MlpImpl>(24, 50), on<MlpImpl>(x, end));
    expect_divides(processes, drawn<SwiGluImpl>(24, 50, kVisionLlamaNames), on<SwiGluImpl>(x, end));
    expect_divides(processes, drawn<PackedSwiGluImpl>(24, 50), on<PackedSwiGluImpl>(x, end));
    for (const MlpForm form : {MlpForm::gelu, MlpForm::gelu_tanh, MlpForm::quick_gelu, MlpForm::relu,
                               MlpForm::silu, MlpForm::swiglu_packed}) {
      SCOPED_TRACE(static_cast<int>(form));
      expect_divides(processes, drawn<AnyMlpImpl>(form, 24, 50), on<AnyMlpImpl>(x));
    }
  }
}

TEST(LayerDivision, MlstmIsThatOfOneProcess) {
  MlstmLayerOptions options{.width = 24, .inner = 48, .heads = 4, .block = 4};
  const TokenGrid grid{.rows = 2, .columns = 3};
  const RunModule run = [x = tokens(), grid](torch::nn::Module& module) {
    return dynamic_cast<MlstmLayerImpl&>(module).forward(x, grid, {.residual = x});
  };
  for (const int64_t processes : {2, 3, 4}) {
    SCOPED_TRACE(processes);
    options = {.width = 24, .inner = 48, .heads = 4, .block = 4};
    expect_divides(processes, drawn<MlstmLayerImpl>(options), run);
    options.directions = {{.reversed = true}};
    options.init_values = 0.1;
    expect_divides(processes, drawn<MlstmLayerImpl>(options), run);
    options.directions = traversals(4);
    options.conv = MlstmConv::causal;
    expect_divides(processes, drawn<MlstmLayerImpl>(options), run);
    options.paper_cell = true, options.share_conv = false, options.value_conv = true;
    options.conv = MlstmConv::sequence, options.directions = {{}};
    expect_divides(processes, drawn<MlstmLayerImpl>(options), run);
  }
}

// The forms that are fused in one process.
TEST(LayerDivision, Float32IsThatOfOneProcess) {
  constexpr double kTolerance = 2e-5;
  const Tensor x = tokens().to(torch::kFloat32);
  expect_divides(
      2, drawn_as<AttentionImpl>(torch::kFloat32, 24, 3),
      [x](torch::nn::Module& module) {
        return dynamic_cast<AttentionImpl&>(module).forward(x, {}, {.residual = x});
      },
      kTolerance);
  expect_divides(2, drawn_as<MlpImpl>(torch::kFloat32, 24, 50), on<MlpImpl>(x), kTolerance);
  expect_divides(2, drawn_as<SwiGluImpl>(torch::kFloat32, 24, 50, kVisionLlamaNames), on<SwiGluImpl>(x),
                 kTolerance);
  const MlstmLayerOptions options{.width = 24, .inner = 48, .heads = 4, .block = 4};
  expect_divides(
      2, drawn_as<MlstmLayerImpl>(torch::kFloat32, options),
      [x](torch::nn::Module& module) {
        return dynamic_cast<MlstmLayerImpl&>(module).forward(x, {.rows = 2, .columns = 3}, {.residual = x});
      },
      kTolerance);
}

}  // namespace
}  // namespace tessera::nn
