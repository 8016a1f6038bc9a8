// Heads that score each class in every cell of a map. Parameters have mmseg's names.
//
// UperNet (Xiao et al. 2018, "Unified perceptual parsing for scene understanding"), maps C_1 (finest) … C_n:
//   P_n = conv3x3([C_n, resize(conv1x1(pool_s(C_n))) for s in 1, 2, 3, 6]) pyramid pooling (Zhao et al. 2017)
//   P_i = conv1x1(C_i) + resize(P_{i+1})                                    i = n-1 … 1
//   scores = conv1x1(conv3x3([conv3x3(P_1), …, conv3x3(P_{n-1}), P_n], all on the grid of C_1))
// FCN (Long et al. 2015): 3x3 convolutions on one map, then the scores; without convolutions it is a linear
// head.
// A batch norm and ReLU follow every convolution except the last; resizing is bilinear.
#pragma once

#include <memory>
#include <vector>

#include "models/heads/feature_pyramid.h"
#include "nn/context.h"
#include "nn/convolution.h"

namespace tessera::models {

// relu(norm(conv(x))) on maps with channels last. Modules `conv` (without bias) and `bn`.
class ConvModule : public torch::nn::Module {
 public:
  ConvModule(int64_t in, int64_t out, int64_t kernel, const nn::BatchNorm2dOptions& norm,
             int64_t dilation = 1);
  torch::Tensor forward(const torch::Tensor& x, const GatherRows& gather = {});
  int64_t macs() const { return conv_->macs(); }  // per cell

 private:
  nn::Conv2d conv_{nullptr};
  nn::BatchNorm2d bn_{nullptr};
};

// The parts that all heads share: dropout of whole channels, the last convolution `conv_seg`.
class SegmentationHead : public torch::nn::Module {
 public:
  // Returns scores [batch, classes, rows, columns] on the finest grid, from maps [batch, channels, rows,
  // columns].
  virtual torch::Tensor forward(const std::vector<torch::Tensor>& maps, const nn::Context& context = {},
                                const GatherRows& gather = {}) = 0;
  // Returns the multiply-adds for maps of these sizes, [rows, columns] each.
  virtual int64_t macs(const std::vector<std::pair<int64_t, int64_t>>& sizes) const = 0;
  // Draws initial weights from the seed and their names: normal by fan-out, 0.01 for the scores (as
  // mmseg).
  void initialise(uint64_t seed);

 protected:
  // Registers `conv_seg`.
  void add_scores(int64_t channels, int64_t classes, double dropout);
  torch::Tensor scores(const torch::Tensor& map, const nn::Context& context);
  int64_t score_macs() const { return conv_seg_->macs(); }

 private:
  double dropout_ = 0;
  nn::Conv2d conv_seg_{nullptr};
};

struct UperHeadOptions {
  std::vector<int64_t> in;  // channels of each map, the finest first
  int64_t channels = 512, classes = 150;
  std::vector<int64_t> pool_sides = {1, 2, 3, 6};
  double dropout = 0.1;
  bool align_corners = false;
  nn::BatchNorm2dOptions norm = {};
};

class UperHead final : public SegmentationHead {
 public:
  explicit UperHead(const UperHeadOptions& options);
  torch::Tensor forward(const std::vector<torch::Tensor>& maps, const nn::Context& context,
                        const GatherRows& gather) override;
  int64_t macs(const std::vector<std::pair<int64_t, int64_t>>& sizes) const override;

 private:
  torch::Tensor pooled(const torch::Tensor& map, const GatherRows& gather);
  UperHeadOptions options_;
  std::vector<std::shared_ptr<ConvModule>> pools_, lateral_, fpn_;
  std::shared_ptr<ConvModule> bottleneck_, fpn_bottleneck_;
};

struct FcnHeadOptions {
  int64_t in = 0, channels = 256, classes = 150;
  int64_t index = 0;         // index of the map that is read, 0 = the finest
  int64_t convolutions = 1;  // 0: scores directly on the map, which then has `channels` channels
  int64_t kernel = 3, dilation = 1;
  bool concat_input = false;  // concatenates the map with the result before one more convolution
  double dropout = 0.1;
  nn::BatchNorm2dOptions norm = {};
};

class FcnHead final : public SegmentationHead {
 public:
  explicit FcnHead(const FcnHeadOptions& options);
  torch::Tensor forward(const std::vector<torch::Tensor>& maps, const nn::Context& context,
                        const GatherRows& gather) override;
  int64_t macs(const std::vector<std::pair<int64_t, int64_t>>& sizes) const override;

 private:
  FcnHeadOptions options_;
  std::vector<std::shared_ptr<ConvModule>> convs_;
  std::shared_ptr<ConvModule> joined_;
};

}  // namespace tessera::models
