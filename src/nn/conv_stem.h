// A stem of convolutions in place of the patch embedding (Xiao et al. 2021, "Early convolutions help transformers see
// better"), as in MoCo v3.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <vector>

#include "nn/convolution.h"

namespace tessera::nn {

// relu(norm(3 x 3 convolution of stride 2)) four times, to width / 8, / 4, / 2 and / 1 channels, then a 1 x 1 convolution
// with a bias. Modules have the published names: proj.0 to proj.12.
class ConvStemImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kPatch = 16;  // the side in pixels of a token
  ConvStemImpl(int64_t width, int64_t channels);
  // [batch, channels, height, width] -> [batch, height / 16, width / 16, width].
  torch::Tensor forward(const torch::Tensor& images);
  int64_t macs(int64_t height, int64_t width) const;

 private:
  std::vector<Conv2d> convolutions_;
  std::vector<BatchNorm2d> norms_;
  Conv2d last_{nullptr};
};
TORCH_MODULE(ConvStem);

}  // namespace tessera::nn
