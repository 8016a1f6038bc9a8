#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/torch.h"

namespace tessera::train {
namespace {

TEST(LossScale, HalvesAtOnceAndDoublesAfterALongTime) {
  LossScale scale(true);
  EXPECT_EQ(scale.scale(), 65536);
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.scale(), 32768);
  for (int i = 0; i < 1999; ++i) EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 32768);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 65536);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.update(false));
}

TEST(LossScale, DoesNothingWhereItIsOff) {
  LossScale scale(false);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.scale(), 1);
}

TEST(LossScale, LeavesTheGradientsOfTheLossItself) {
  const LossScale scale(true);
  torch::manual_seed(0);
  const torch::Tensor x = torch::randn({7}, torch::requires_grad());
  (x.pow(3).sum() * scale.scale()).backward();
  scale.unscale({x, torch::zeros({2}, torch::requires_grad())});
  EXPECT_TRUE(torch::equal(x.grad(), 3 * x.detach().pow(2)));
}

TEST(LossScale, IsKeptByItsState) {
  LossScale scale(true), again(true);
  scale.update(false), scale.update(true);
  again.load(scale.state(), "manifest");
  EXPECT_EQ(again.state(), scale.state());
  for (const double wrong : {0.0, 3.0, 1e300, -2.0}) {
    Value state = scale.state();
    state.set("scale", wrong);
    EXPECT_THROW(again.load(state, "manifest"), Error);
  }
}

}  // namespace
}  // namespace tessera::train
