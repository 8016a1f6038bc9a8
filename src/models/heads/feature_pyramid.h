// Necks that turn the maps of a plain backbone, all on one grid, into maps of several sizes, for heads that
// read a pyramid. Parameters have mmseg's names.
//
//   Feature2Pyramid (BEiT, Bao et al. 2022; MAE): 4x = two transposed convolutions of 2x2 cells, batch norm
//     and GELU between them, 2x = one, 1x = the map itself, 0.5x and 0.25x = max pooling of 2x2 and 4x4 cells
//   MultiLevelNeck (UperNet on ViT in mmseg): 1x1 convolution, bilinear resizing by factor, 3x3 convolution
//
// Maps are [batch, channels, rows, columns].
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <vector>

#include "nn/convolution.h"
#include "nn/init.h"

namespace tessera::models {

// Batch norm over the samples of all processes (SyncBN), for heads, which see few samples per process.

// Gathers the rows [samples, columns] of all processes in the order of the batch. Rows of samples that no
// process computes now are zero. Gradients flow back. Empty: this is the only process.
using GatherRows = std::function<torch::Tensor(const torch::Tensor& rows)>;

// Normalises a map [batch, rows, columns, channels]. In training with `gather`, mean and variance are over
// the samples of all processes: the same for any number of processes.
torch::Tensor normalise(const nn::BatchNorm2d& norm, const torch::Tensor& map, const GatherRows& gather);

// Permute [batch, channels, height, width] to [batch, height, width, channels], and back.
inline torch::Tensor channels_last(const torch::Tensor& map) { return map.permute({0, 2, 3, 1}); }
inline torch::Tensor channels_first(const torch::Tensor& map) { return map.permute({0, 3, 1, 2}); }

class MapNeck : public torch::nn::Module {
 public:
  // Returns one map per factor; map i has factor i times the grid of `maps[i]`.
  virtual std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps,
                                             const GatherRows& gather = {}) = 0;
  // Draws the initial weights from the seed and their names.
  virtual void initialise(uint64_t seed) = 0;
  // Returns the channels of each output map.
  virtual std::vector<int64_t> widths() const = 0;
  // Returns the multiply-adds for maps of rows x columns cells.
  virtual int64_t macs(int64_t rows, int64_t columns) const = 0;
};

// The necks accept the factors 4, 2, 1, 0.5 and 0.25; others are a usage error.
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
  std::shared_ptr<Upsample> twice_, four_times_;  // null if no factor needs these layers
};

class MultiLevelNeck final : public MapNeck {
 public:
  // `in`: channels of each input map, or of the one map used for all factors.
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
