// RoIAlign's kernel against the composition for GPUs.
#include "ops/roi_align.h"

#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

// Boxes of images in random order, some across the edge, one empty.
torch::Tensor boxes() {
  return torch::tensor({{2.0, 3.0, 1.0, 17.5, 9.0},
                        {0.0, -4.0, -2.0, 30.0, 12.0},
                        {2.0, 5.0, 5.0, 5.0, 5.0},
                        {0.0, 0.0, 0.0, 6.0, 22.0},
                        {2.0, 1.5, 2.5, 25.0, 21.0}},
                       torch::kFloat64);
}

TEST(RoiAlign, CompositionEqualsTheKernelAndItsGradient) {
  torch::manual_seed(1);
  for (const RoiAlignOptions& options :
       {RoiAlignOptions{0.5, true, 0, 7, 7}, RoiAlignOptions{1, false, 2, 3, 5},
        RoiAlignOptions{0.25, true, 3, 1, 2}}) {
    const torch::Tensor map = torch::randn({3, 4, 11, 13}, torch::kFloat64);  // no box uses the second image
    torch::Tensor x = map.clone().requires_grad_(true), y = map.clone().requires_grad_(true);
    const torch::Tensor fast = roi_align(x, boxes(), options),
                        composed = roi_align_unfused(y, boxes(), options);
    EXPECT_TRUE(torch::allclose(composed, fast, 1e-12, 1e-12));
    const torch::Tensor gradient = torch::randn_like(fast);
    fast.backward(gradient);
    composed.backward(gradient);
    EXPECT_TRUE(torch::allclose(y.grad(), x.grad(), 1e-12, 1e-12));
  }
}

TEST(RoiAlign, CompositionOfNoBoxesHasAGradientOfZeros) {
  torch::Tensor x = torch::randn({1, 2, 4, 4}).requires_grad_(true);
  const torch::Tensor y = roi_align_unfused(x, torch::zeros({0, 5}), {});
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 2, 7, 7}));
  y.sum().backward();
  EXPECT_EQ(x.grad().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace tessera::ops
