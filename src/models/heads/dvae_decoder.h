// The decoder of a discrete VAE (Ramesh et al. 2021, appendix A). It maps a grid of code vectors to pixels or
// to the parameters of their distribution. The grid doubles between groups of residual blocks.
//
//   x0 = conv1x1(codes' vectors)
//   a block: x' = id(x) + g conv3x3(relu conv3x3(relu conv3x3(relu conv1x1(relu x)))),  g = 1 / blocks^2
//   outputs = conv1x1(relu x_L)
// Parameters are named like the encoder's (models/backbones/dalle.cpp).
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/convolution.h"

namespace tessera::models {

struct DvaeDecoderOptions {
  int64_t codes = 0;  // number of its own code vectors, [codes, code_width]; 0: the caller provides them
  int64_t code_width = 128;
  std::vector<int64_t> dims = {}, depths = {};  // one per group, from the coarsest grid to the pixels'
  int64_t outputs = 6;                          // channels of a pixel
};

class DvaeDecoder final : public torch::nn::Module {
 public:
  explicit DvaeDecoder(const DvaeDecoderOptions& options);
  void initialise(uint64_t seed);

  // Maps code vectors [batch, rows, columns, code_width] to [batch, height, width, outputs].
  torch::Tensor forward(const torch::Tensor& vectors);
  // Return its own code vectors, mixed by weights [batch, rows, columns, codes] or selected by int64 [batch,
  // rows, columns].
  torch::Tensor mixed(const torch::Tensor& weights) const;
  torch::Tensor chosen(const torch::Tensor& index) const;
  int64_t macs(int64_t rows, int64_t columns) const;  // for a grid of codes

 private:
  class Block;
  DvaeDecoderOptions options_;
  torch::Tensor codebook_;
  nn::Conv2d input_{nullptr}, output_{nullptr};
  std::vector<std::vector<std::shared_ptr<Block>>> groups_;
};

}  // namespace tessera::models
