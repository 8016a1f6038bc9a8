#include "weights/load_tensors.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::train {
namespace {

TensorView view(const std::string& name, const torch::Tensor& tensor) {
  return {name,
          DType::f32,
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

TEST(DetectronWeights, NormsOfScaleAndShiftGetStatistics) {
  const torch::Tensor scale = torch::rand({4});
  const std::vector<TensorView> views = {view("backbone.bottom_up.res2.0.conv1.norm.weight", scale),
                                         view("backbone.bottom_up.res2.0.conv1.norm.bias", scale),
                                         view("res_conv1_bn_s", scale),
                                         view("roi_heads.box_head.conv1.norm.weight", scale)};
  const NamedTensors found = absent_statistics(views);
  ASSERT_EQ(found.size(), 4U) << "the head's norm is none over the batch";
  EXPECT_EQ(found[0].first, "backbone.bottom_up.res2.0.conv1.norm.running_mean");
  EXPECT_EQ(found[1].first, "backbone.bottom_up.res2.0.conv1.norm.running_var");
  EXPECT_EQ(found[2].first, "res_conv1_bn_rm");
  EXPECT_TRUE(torch::equal(found[2].second, torch::zeros({4})));
  EXPECT_TRUE(torch::equal(found[3].second, torch::ones({4})));
  std::vector<TensorView> whole = views;
  whole.push_back(view("backbone.bottom_up.res2.0.conv1.norm.running_mean", scale));
  EXPECT_TRUE(absent_statistics(whole).empty());
}

TEST(DetectronWeights, TheFirstConvolutionIsTurned) {
  const torch::Tensor first = torch::rand({4, 3, 7, 7}), other = torch::rand({4, 4, 3, 3});
  const auto [name, turned] = turned_first_convolution({view("a", other), view("conv1_w", first)}, "f");
  EXPECT_EQ(name, "conv1_w");
  const torch::Tensor image = torch::rand({1, 3, 9, 9});
  EXPECT_TRUE(torch::allclose(torch::conv2d(image, turned), torch::conv2d(image.flip(1), first), 1e-5, 1e-6));
  EXPECT_THROW(turned_first_convolution({view("a", other)}, "f"), Error);
  EXPECT_THROW(turned_first_convolution({view("a", first), view("b", first)}, "f"), Error);
}

}  // namespace
}  // namespace tessera::train
