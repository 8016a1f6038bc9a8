// Necks that make several maps out of a plain backbone's, which all have one grid, for heads that read a pyramid.
// Names of parameters are mmseg's.
//
//   Feature2Pyramid (BEiT, Bao et al. 2022; MAE): 4x = two transposed convolutions of 2x2 cells with a batch norm
//     and GELU between them, 2x = one, 1x = the map itself, 0.5x and 0.25x = max pooling of 2x2 and 4x4 cells
//   MultiLevelNeck (UperNet on ViT in mmseg): a 1x1 convolution, bilinear resizing by the factor, a 3x3 convolution
//
// Maps are [batch, channels, rows, columns].
#pragma once

#include <memory>
#include <vector>

#include "models/heads/gathered_norm.h"
#include "nn/convolution.h"
#include "nn/init.h"

namespace tessera::models {

class MapNeck : public torch::nn::Module {
 public:
  // As many maps as there are factors, map i on factor i times the grid of `maps[i]`.
  virtual std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps,
                                             const GatherRows& gather = {}) = 0;
  // First weights, from the seed and their names.
  virtual void initialise(uint64_t seed) = 0;
  // Channels of each map that comes out.
  virtual std::vector<int64_t> widths() const = 0;
  // Multiply-adds for maps of so many rows and columns.
  virtual int64_t macs(int64_t rows, int64_t columns) const = 0;
};

// The factors that the necks may be asked for: 4, 2, 1, 0.5, 0.25; others are a usage error.
class Feature2Pyramid final : public MapNeck {
 public:
  Feature2Pyramid(int64_t width, const std::vector<double>& factors);
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps,
                                     const GatherRows& gather) override;
  void initialise(uint64_t seed) override;
  std::vector<int64_t> widths() const override { return std::vector<int64_t>(factors_.size(), width_); }
  int64_t macs(int64_t rows, int64_t columns) const override;

 private:
  class Upsample;
  int64_t width_;
  std::vector<double> factors_;
  std::shared_ptr<Upsample> twice_, four_times_;  // null where no factor asks for them
};

class MultiLevelNeck final : public MapNeck {
 public:
  // `in`: channels of each map that comes in, or of the one that stands for all of them.
  MultiLevelNeck(const std::vector<int64_t>& in, int64_t out, const std::vector<double>& factors);
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps,
                                     const GatherRows& gather) override;
  void initialise(uint64_t seed) override;
  std::vector<int64_t> widths() const override { return std::vector<int64_t>(factors_.size(), out_); }
  int64_t macs(int64_t rows, int64_t columns) const override;

 private:
  int64_t out_;
  std::vector<double> factors_;
  std::vector<nn::Conv2d> lateral_, convs_;
};

}  // namespace tessera::models
