// Plain backbones with windows, as in ViTDet (Li, Mao, Girshick & He 2022, "Exploring plain vision
// transformer backbones for object detection"). Most blocks mix the tokens of a window, a few those of the
// whole map. Alternatively all blocks mix windows, and a residual bottleneck of convolutions after some of
// them connects the windows.
//
// After the norm, windows are padded with zeros to the right and below; padding tokens take part. Inside a
// window, tokens are row-major and have the positions of a map of the window's size. Non-patch tokens form a
// separate window.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/family.h"
#include "models/base/pyramid_neck.h"
#include "nn/init.h"

namespace tessera::models {

// Pads x [batch, rows, columns, width] with zeros below and to the right, so that its sides are multiples of
// these; returns it unchanged if they are.
torch::Tensor pad_to_multiple(const torch::Tensor& x, int64_t rows, int64_t columns);

// x [batch, rows, columns, width], padded to whole windows of `height` x `width` cells -> [batch * windows,
// height * width, width of x]; windows and the tokens in them row by row.
torch::Tensor to_windows(const torch::Tensor& x, int64_t height, int64_t width);

// The inverse, [batch, rows, columns, width], without the padding.
torch::Tensor from_windows(const torch::Tensor& windows, int64_t height, int64_t width, int64_t rows,
                           int64_t columns);

// A family's Config derives from this and calls visit_windows() and check_windows().
struct WindowSettings {
  int64_t window_size = 0;
  std::vector<int64_t> global_blocks = {}, conv_blocks = {};

  template <class V>
  void visit_windows(V& v) {
    v("window_size", window_size, between(0, 128),
      "patches along a side of a window, 0 = all blocks see the whole map");
    v("global_blocks", global_blocks,
      "blocks that see the whole map, counted from 0; the others see windows");
    v("conv_blocks", conv_blocks, "blocks that a residual bottleneck of convolutions follows");
  }
  void check_windows(int64_t depth) const;
  // Returns the side of the windows of a block; 0 = the whole map.
  int64_t window_of(int64_t block) const;
  bool has_convs(int64_t block) const;
};

// Computes x + norm3(conv1x1(gelu(norm2(conv3x3(gelu(norm1(conv1x1 x))))))), half as wide inside; x [batch,
// rows, columns, dim].
class ConvBottleneck : public torch::nn::Module {
 public:
  explicit ConvBottleneck(int64_t dim);
  torch::Tensor forward(const torch::Tensor& x);
  int64_t macs() const { return conv1_->macs() + conv2_->macs() + conv3_->macs(); }  // per token
  // Fills the initial values of one of its parameters: the bottleneck adds nothing at first. Returns false
  // for other parameters.
  static bool first_values(const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill);

 private:
  nn::Conv2d add(const std::string& number, const nn::Conv2dOptions& options);
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  std::vector<nn::LayerNorm> norms_;
};

// Returns the number of windows of `side` cells that cover a map of these sides.
int64_t window_count(int64_t rows, int64_t columns, int64_t side);

}  // namespace tessera::models
