#include "models/backbones/inception.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace tessera::models::inception_test {
namespace {

torch::Tensor bytes(int64_t height, int64_t width) {
  return (torch::arange(2 * 3 * height * width) * 7919 % 256).to(torch::kUInt8).view({2, 3, height, width});
}

TEST(FidPixels, OfTheNetworksSizeStayAsTheyAre) {
  const torch::Tensor x = bytes(299, 299);
  for (const FidProtocol protocol : {FidProtocol::tf, FidProtocol::pytorch, FidProtocol::clean})
    EXPECT_TRUE(torch::allclose(fid_resized(x, protocol, torch::kFloat64), x.to(torch::kFloat64), 0, 1e-9));
}

TEST(FidPixels, ConstantsStayConstant) {
  const torch::Tensor x = torch::full({1, 3, 40, 56}, 200, torch::kUInt8);
  for (const FidProtocol protocol : {FidProtocol::tf, FidProtocol::pytorch, FidProtocol::clean}) {
    const torch::Tensor y = fid_resized(x, protocol, torch::kFloat64);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{1, 3, 299, 299}));
    EXPECT_LT((y - 200).abs().max().item<double>(), 1e-9);
  }
  EXPECT_NEAR(fid_pixels(x, FidProtocol::pytorch, torch::kFloat64).max().item<double>(), 2 * 200.0 / 255 - 1,
              1e-9);
  EXPECT_NEAR(fid_pixels(x, FidProtocol::tf, torch::kFloat64).max().item<double>(), 72.0 / 128, 1e-9);
}

// TensorFlow 1 samples at i * in / out, so that the last columns repeat the last pixel.
TEST(FidPixels, TensorFlowHasNoHalfPixels) {
  const torch::Tensor x = bytes(8, 5), y = fid_resized(x, FidProtocol::tf, torch::kFloat64);
  for (const int64_t i : {0, 1, 37, 150, 298}) {
    const double source = static_cast<double>(i) * 5 / 299;
    const auto low = static_cast<int64_t>(std::floor(source));
    const int64_t high = std::min<int64_t>(4, low + 1);
    const double a = x[1][2][0][low].item<double>(), b = x[1][2][0][high].item<double>();
    EXPECT_NEAR(y[1][2][0][i].item<double>(), a + (b - a) * (source - static_cast<double>(low)), 1e-9);
  }
  EXPECT_EQ(y[0][0][298][298].item<double>(), x[0][0][7][4].item<double>());
}

TEST(FidPixels, RefusesOtherTensors) {
  EXPECT_ANY_THROW(fid_pixels(torch::zeros({1, 3, 8, 8}), FidProtocol::tf, torch::kFloat32));
  EXPECT_ANY_THROW(fid_pixels(torch::zeros({3, 8, 8}, torch::kUInt8), FidProtocol::tf, torch::kFloat32));
}

TEST(InceptionFid, SaysWhatAFileLacks) {
  InceptionFid network;
  int64_t numbers = 0;
  for (const torch::Tensor& tensor : network.parameters()) numbers += tensor.numel();
  for (const torch::Tensor& tensor : network.buffers()) numbers += tensor.numel();
  EXPECT_EQ(numbers, 23885392);  // of pt_inception-2015-12-05
  try {
    load_inception(
        network, [](const std::string&) { return torch::Tensor(); }, "'f.pth'");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "'f.pth': holds no Inception-v3 of FID: it has no tensor 'Conv2d_1a_3x3.conv.weight'");
  }
}

}  // namespace
}  // namespace tessera::models::inception_test
