// A keeper sees each unit once before its forward and once before its backward pass, in order; recomputation changes no
// gradient.
#include "nn/units.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "core/text.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

// Writes down what it is asked for, by the first parameter's size.
struct Diary final : UnitKeeper {
  std::string text;
  void write(const char* what, const std::vector<Tensor>& parameters) {
    text += tessera::text(what, parameters.at(0).size(0), " ");
  }
  void enter(const std::vector<Tensor>& parameters) override { write("+", parameters); }
  void leave(const std::vector<Tensor>& parameters) override { write("-", parameters); }
  void enter_backward(const std::vector<Tensor>& parameters) override { write("<", parameters); }
};

struct Blocks {
  std::vector<Tensor> weights;
  Blocks() {
    torch::manual_seed(1);
    for (const int64_t rows : {5, 6, 7})
      weights.push_back(torch::randn({rows, 3}, torch::kFloat64).requires_grad_());
  }
  Tensor run(Tensor x, bool recompute) const {
    for (const Tensor& weight : weights)
      x = run_unit(x,
                   {.body = [weight](const Tensor& in) { return in + in.mm(weight.t()).tanh().mm(weight); },
                    .parameters = [&] { return std::vector{weight}; },
                    .recompute = recompute});
    return x;
  }
  // Returns the gradients of the weights.
  std::vector<Tensor> gradients(bool recompute) const {
    run(torch::ones({2, 3}, torch::kFloat64), recompute).square().sum().backward();
    std::vector<Tensor> found;
    for (const Tensor& weight : weights)
      found.push_back(weight.grad().clone()), weight.mutable_grad().reset();
    return found;
  }
};

TEST(Units, KeepersSeeEachPassInOrder) {
  const Blocks blocks;
  const std::vector<Tensor> want = blocks.gradients(false);
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute);
    Diary diary;
    {
      const UnitScope scope(&diary);
      const std::vector<Tensor> found = blocks.gradients(recompute);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::equal(found[i], want[i]));
    }
    EXPECT_EQ(diary.text, "+5 -5 +6 -6 +7 -7 <7 <6 <5 ");
    const std::string before = diary.text;
    blocks.gradients(recompute);
    EXPECT_EQ(diary.text, before);  // the scope has ended
  }
}

TEST(Units, WithoutGradientsThereIsNoBackwardPass) {
  const Blocks blocks;
  const torch::NoGradGuard no_grad;
  Diary diary;
  const UnitScope scope(&diary);
  blocks.run(torch::ones({2, 3}, torch::kFloat64), true);
  EXPECT_EQ(diary.text, "+5 -5 +6 -6 +7 -7 ");
}

// A function around the units, as in gradient caching, comes to the keeper again when it is recomputed.
TEST(Units, RecomputedUnitsComeToTheirKeeper) {
  const Blocks blocks;
  const std::vector<Tensor> want = blocks.gradients(false);
  Diary diary;
  Tensor y;
  {
    const UnitScope scope(&diary);
    y = checkpoint([&](const Tensor& x) { return blocks.run(x, false); },
                   torch::ones({2, 3}, torch::kFloat64), blocks.weights);
  }
  EXPECT_EQ(diary.text, "+5 -5 +6 -6 +7 -7 ");
  y.square().sum().backward();
  EXPECT_EQ(diary.text, "+5 -5 +6 -6 +7 -7 +5 -5 +6 -6 +7 -7 <7 <6 <5 ");
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::equal(blocks.weights[i].grad(), want[i]));
}

TEST(Units, AModulesStacksAreFound) {
  struct Inner : torch::nn::Module, Stack {
    std::vector<std::vector<Tensor>> units() const override {
      return {{torch::ones({2})}, {torch::ones({3})}};
    }
  };
  const auto outer = std::make_shared<torch::nn::Module>();
  const auto inner = outer->register_module("inner", std::make_shared<Inner>());
  set_checkpointing(*outer, true);
  EXPECT_TRUE(inner->checkpointing);
  EXPECT_EQ(units_of(*outer).size(), 2u);
}

}  // namespace
}  // namespace tessera::nn
