// Forward passes as graphs, by a table of the test: it records the pass, and a replay runs it again with the same memory.
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "core/error.h"
#include "core/random.h"
#include "models/base/family.h"
#include "models/base/graphed.h"
#include "models/base/graphs_testing.h"
#include "models/heads/class_head.h"
#include "nn/units.h"
#include "ops/gpu.h"
#include "ops/inference.h"

namespace tessera::models::graphed_test {
namespace {

using torch::Tensor;

RecordedGraphs::Counts& counts = RecordedGraphs::counts();

class Graphs : public testing::Test {
 protected:
  Graphs() { module.eval(); }

  // Computes x W.
  Tensor run(const Tensor& x) {
    return pass.run(x, {&module}, [this](const Tensor& in) { return in.mm(weight); });
  }
  // Calls it often enough for a graph, and compares each result.
  void settle(const Tensor& x) {
    for (int64_t call = 0; call <= GraphedPass::kWarmCalls; ++call) EXPECT_TRUE(run(x).equal(x.mm(weight)));
  }

  RecordedGraphs graphs;
  torch::NoGradGuard no_grad;
  torch::nn::Module module;
  Tensor weight = module.register_parameter("weight", torch::randn({4, 3}));
  GraphedPass pass;
};

TEST_F(Graphs, AreRecordedInTheThirdCall) {
  for (int call = 1; call <= 5; ++call) {
    const Tensor x = torch::randn({2, 4});
    EXPECT_TRUE(run(x).equal(x.mm(weight)));
    EXPECT_EQ(pass.captures(), call < 3 ? 0 : 1);
    EXPECT_EQ(counts.replays, std::max(0, call - 2));
    EXPECT_EQ(pass.reason(), call < 3 ? "its first calls have no graph" : "");
  }
  const Tensor y = run(torch::randn({2, 4})), kept = y.clone();
  run(torch::randn({2, 4}));
  EXPECT_TRUE(y.equal(kept)) << "a replay overwrote an earlier result";
}

TEST_F(Graphs, AShapeOrATypeHasItsOwn) {
  const Tensor x = torch::randn({2, 4});
  settle(x);
  settle(torch::randn({5, 4}));
  EXPECT_EQ(pass.captures(), 2);
  settle(torch::randn({4, 2}).t());  // other strides
  EXPECT_EQ(pass.captures(), 3);
  run(x);
  EXPECT_EQ(pass.captures(), 3);
  EXPECT_EQ(pass.reason(), "");
  EXPECT_EQ(counts.alive, 3);
}

TEST_F(Graphs, SettingsThatChangeTheNumbersHaveTheirOwn) {
  const Tensor x = torch::randn({2, 4});
  settle(x);
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    at::autocast::set_autocast_dtype(torch::kCPU, type);
    settle(x);
    EXPECT_EQ(run(x).scalar_type(), type);
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  EXPECT_EQ(pass.captures(), 3);
  {
    const c10::InferenceMode inference;
    settle(x);
  }
  EXPECT_EQ(pass.captures(), 4);
  ops::InferenceSettings settings = ops::inference_settings();
  settings.fused = false;
  const ops::InferenceScope scope(settings);
  settle(x);
  EXPECT_EQ(pass.captures(), 5);
}

TEST_F(Graphs, WeightsThatChangeAreSeen) {
  const Tensor x = torch::randn({2, 4});
  settle(x);
  weight.mul_(2);
  EXPECT_TRUE(run(x).equal(x.mm(weight)));
  EXPECT_EQ(pass.captures(), 1);
  weight.set_data(torch::randn({4, 3}));  // other memory
  settle(x);
  EXPECT_EQ(pass.captures(), 2);
  EXPECT_EQ(counts.alive, 1);
  pass.forget();
  EXPECT_EQ(counts.alive, 0);
  settle(x);
  EXPECT_EQ(pass.captures(), 3);
}

TEST_F(Graphs, AreBounded) {
  const auto shape = [](int64_t rows) { return torch::randn({rows, 4}); };
  const auto most = static_cast<int64_t>(GraphedPass::kMostGraphs);
  for (int64_t rows = 1; rows <= most; ++rows) settle(shape(rows));
  EXPECT_EQ(counts.alive, most);
  run(shape(1));            // used again
  settle(shape(most + 1));  // the graph of two rows goes
  EXPECT_EQ(counts.alive, most);
  EXPECT_EQ(pass.graphs(), GraphedPass::kMostGraphs);
  run(shape(1));
  EXPECT_EQ(pass.reason(), "");
  run(shape(2));
  EXPECT_EQ(pass.reason(), "its first calls have no graph");
  for (int64_t rows = 100; rows < 100 + 2 * GraphedPass::kMostDropped; ++rows) run(shape(rows));
  EXPECT_EQ(pass.reason(), "shapes change too often");
  const Tensor x = shape(99);
  EXPECT_TRUE(run(x).equal(x.mm(weight)));
}

TEST_F(Graphs, WhatCannotBeRecordedIsComputedWithoutThem) {
  const Tensor x = torch::randn({2, 4});
  settle(x);
  const auto reason = [&] {
    EXPECT_TRUE(run(x).equal(x.mm(weight)));
    return pass.reason();
  };
  {
    const torch::AutoGradMode with(true);
    EXPECT_EQ(reason(), "gradients are recorded");
  }
  {
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); }));
    EXPECT_EQ(reason(), "a profile is taken");
    at::removeCallback(handle);
  }
  {
    struct Other : nn::UnitRunner {
      Tensor run(const Tensor& in, const nn::Unit& unit) override { return unit.body(in); }
    } runner;
    const nn::UnitScope scope(&runner);
    EXPECT_EQ(reason(), "processes divide the model");
  }
  module.train();
  EXPECT_EQ(reason(), "the model is in training mode");
  module.eval();
  const auto there = pass.run(x.to(torch::kMeta), {}, [](const Tensor& in) { return in; });
  EXPECT_EQ(pass.reason(), "the input is not on a GPU");
  EXPECT_EQ(reason(), "");
}

TEST_F(Graphs, AFailureIsOneLineAndIsNotRepeated) {
  const Tensor x = torch::randn({2, 4});
  counts.capture_error = "out of memory\nat line 3";
  for (int call = 0; call < 5; ++call) EXPECT_TRUE(run(x).equal(x.mm(weight)));
  EXPECT_EQ(pass.reason(), "the recording failed: out of memory");
  EXPECT_EQ(counts.captures, 1);
  counts.capture_error = nullptr;
  const Tensor y = torch::randn({3, 4});
  settle(y);
  EXPECT_EQ(pass.reason(), "");
  counts.replay_error = "illegal address";
  for (int call = 0; call < 2; ++call) {
    EXPECT_TRUE(run(y).equal(y.mm(weight)));
    EXPECT_EQ(pass.reason(), "the graph failed: illegal address");
  }
  EXPECT_EQ(counts.alive, 0);
}

// An exception ends the recording, then the pass runs as usual; its own errors are seen as usual.
TEST_F(Graphs, AnExceptionInARecordingIsNoError) {
  int calls = 0;
  const Tensor x = torch::ones({2});
  const auto throws_in_the_third = [&](const Tensor& in) {
    if (++calls == 3) throw std::runtime_error("not in a recording");
    return in + 1;
  };
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(pass.run(x, {}, throws_in_the_third).equal(torch::full({2}, 2.0)));
  EXPECT_EQ(pass.reason(), "the recording failed: not in a recording");
  EXPECT_EQ(counts.alive, 0);
}

// Steps of training: the gradients of the sum of (x W)^2, with a buffer that counts them.
class Steps : public testing::Test {
 protected:
  Steps() { module.train(); }

  GraphedPass::Tensors compute(const Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      calls.add_(1);
    }
    if (draws) RandomStream(1, "test");
    if (sends) ops::sent_to(torch::kCPU, torch::ones({1}));
    const Tensor sum = x.mm(weight).square().sum();
    sum.backward();
    if (reads) sum.item<float>();
    if (throws && calls.item<double>() == 3) throw std::runtime_error("not in a recording");
    return {sum.detach()};
  }
  Tensor run(const Tensor& x, int64_t number = 0) {
    return pass.run_step({x}, {number}, {&module}, [this](const auto& in) { return compute(in[0]); })[0];
  }
  // Runs a step like an optimiser's, and compares all that it gives.
  void expect_right(const Tensor& x, int64_t number = 0) {
    const Tensor copy = weight.detach().clone().requires_grad_();
    const Tensor sum = x.mm(copy).square().sum();
    sum.backward();
    const double before = calls.item<double>();
    EXPECT_TRUE(run(x, number).equal(sum.detach()));
    EXPECT_TRUE(weight.grad().equal(copy.grad()));
    EXPECT_FALSE(unused.grad().defined());
    EXPECT_EQ(calls.item<double>(), before + 1);
    const torch::NoGradGuard no_grad;
    weight.sub_(weight.grad() * 0.01);
    weight.mutable_grad().reset();
  }

  RecordedGraphs graphs;
  torch::nn::Module module;
  Tensor weight = module.register_parameter("weight", torch::randn({4, 3})),
         unused = module.register_parameter("unused", torch::zeros({2})),
         calls = module.register_buffer("calls", torch::zeros({}));
  GraphedPass pass;
  bool draws = false, sends = false, reads = false, throws = false;
};

TEST_F(Steps, AreRecordedInTheThirdCall) {
  for (int call = 1; call <= 6; ++call) {
    expect_right(torch::randn({2, 4}));
    EXPECT_EQ(pass.captures(), call < 3 ? 0 : 1);
    EXPECT_EQ(counts.replays, std::max(0, call - 2));
  }
  const Tensor x = torch::randn({2, 4}), first = run(x), kept = first.clone();
  const void* const memory = weight.grad().const_data_ptr();
  weight.mutable_grad().reset();
  run(torch::randn({2, 4}));
  EXPECT_EQ(weight.grad().const_data_ptr(), memory) << "an optimiser's table of addresses has to change";
  EXPECT_TRUE(first.equal(kept)) << "a replay overwrote an earlier loss";
  EXPECT_THROW(run(x), Error) << "gradients would be added";
  weight.mutable_grad().reset();
  expect_right(x);
}

TEST_F(Steps, ANumberHasItsOwnGraph) {
  for (int call = 0; call < 4; ++call)
    for (const int64_t number : {1, 2}) expect_right(torch::ones({2, 4}), number);
  EXPECT_EQ(pass.captures(), 2);
  EXPECT_EQ(counts.replays, 4);
}

TEST_F(Steps, ValuesOfOneStepAreRefused) {
  const auto reason = [&] {
    pass.forget();
    for (int call = 0; call < 5; ++call) expect_right(torch::randn({2, 4}));
    EXPECT_EQ(pass.refusal(), pass.reason());
    return pass.reason();
  };
  draws = true;
  EXPECT_EQ(reason(), "the recording failed: random numbers are drawn (test)");
  draws = false, sends = true;
  EXPECT_EQ(reason(), "the recording failed: a table of one pass is sent to the device");
  sends = false, reads = true;
  EXPECT_EQ(reason(), "the recording failed: it reads values back (aten::_local_scalar_dense)");
  reads = false;
  EXPECT_EQ(reason(), "");
  RandomStream(1, "outside of a recording");
  module.eval();
  expect_right(torch::randn({2, 4}));
  EXPECT_EQ(pass.reason(), "the model is in evaluation mode");
}

TEST_F(Steps, HalfAStepLeavesNothing) {
  throws = true;
  for (int call = 0; call < 2; ++call) expect_right(torch::randn({2, 4}));
  const Tensor x = torch::randn({2, 4});
  EXPECT_THROW(run(x), std::runtime_error);  // the recording, and then the call itself
  EXPECT_EQ(pass.captures(), 0);
  EXPECT_EQ(calls.item<double>(), 3);
  throws = false;
  weight.mutable_grad().reset();
  expect_right(x);
  EXPECT_EQ(pass.reason(), "the recording failed: not in a recording");
}

TEST(GraphsOff, NothingIsRecorded) {
  counts = {};
  GraphedPass pass;
  const torch::NoGradGuard no_grad;
  for (int call = 0; call < 4; ++call)
    pass.run(torch::ones({2}), {}, [](const Tensor& in) { return in + 1; });
  EXPECT_EQ(pass.captures(), 0);
  EXPECT_EQ(pass.graphs(), 0u);
}

TEST_F(Graphs, ClassScoresAreTheSameBits) {
  for (const char* family : {"vit", "vil"}) {
    Value settings = table({{"image_size", 32}, {"patch_size", 16}, {"dim", 32}, {"depth", 2}});
    if (std::string(family) == "vit") settings.set("heads", 2);
    const ModelSpec spec = resolve_model(family, settings);
    Classifier model(build_backbone(spec, 3), {.classes = 5}, 3);
    model.backbone->eval();
    counts = {};
    for (int call = 0; call < 5; ++call) {
      const Tensor images = torch::randn({2, 3, 32, 32});
      const Tensor scores = model.forward(images);
      EXPECT_TRUE(scores.equal(model.forward_heads(images)[0])) << family << ", call " << call;
    }
    EXPECT_EQ(counts.captures, 1) << family;
    EXPECT_EQ(counts.replays, 3) << family;
    Context tapped;
    Taps taps;
    tapped.taps = &taps;
    model.forward(torch::randn({2, 3, 32, 32}), tapped);
    EXPECT_FALSE(taps.kept.empty());
    model.backbone->train();
    model.forward(torch::randn({2, 3, 32, 32}));
    EXPECT_EQ(counts.replays, 3) << family;
    model.backbone->eval();
    model.reset_head(7);
    EXPECT_EQ(model.forward(torch::randn({2, 3, 32, 32})).size(1), 7);
  }
}

}  // namespace
}  // namespace tessera::models::graphed_test
