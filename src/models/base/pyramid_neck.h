// Necks that make a pyramid of a backbone's maps: FPN (Lin et al. 2017) from maps of several strides, the
// simple feature pyramid (Li et al. 2022, "Exploring plain vision transformer backbones for object
// detection") from one. Maps have their channels last here, [batch, rows, columns, channels].
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "models/base/family.h"
#include "nn/convolution.h"
#include "nn/norm.h"

namespace tessera::models {

// layer: LayerNorm over the channels of each cell, eps 1e-6.
enum class ConvNormKind { none, layer, batch };

// A convolution of stride 1 (or `stride`) that keeps the grid, and its norm. It has a bias only without a
// norm. Parameters weight, bias, norm.*.
class NormedConvImpl : public nn::Conv2dImpl {
 public:
  NormedConvImpl(int64_t in, int64_t out, int64_t kernel, ConvNormKind norm = ConvNormKind::none,
                 int64_t stride = 1);
  torch::Tensor operator()(const torch::Tensor& x);

 private:
  nn::LayerNorm layer_{nullptr};
  nn::BatchNorm2d batch_{nullptr};
};
TORCH_MODULE(NormedConv);

// Returns the number of cells of a map of this stride.
inline int64_t cells_of(Extent image, int64_t stride) {
  return ((image.height + stride - 1) / stride) * ((image.width + stride - 1) / stride);
}

class PyramidNeck : public torch::nn::Module {
 public:
  // Returns the pyramid, finest map first.
  virtual std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps) = 0;
  // Returns the pixels between the cells of each map.
  virtual std::vector<int64_t> strides() const = 0;
  virtual int64_t macs(Extent image) const = 0;  // multiply-adds of one image of this size
};

enum class TopLevels {
  none,
  pool,         // takes every second cell of the coarsest map
  convolve_in,  // 3x3 convolutions of stride 2: p6 from the coarsest input map, p7 from relu(p6)
  convolve_out  // the same from the coarsest output map
};

struct FpnOptions {
  std::vector<int64_t> in = {};       // channels of the maps, finest first
  std::vector<int64_t> strides = {};  // pixels between their cells
  int64_t width = 256;
  ConvNormKind norm = ConvNormKind::none;
  TopLevels top = TopLevels::pool;
  // Adds a LayerNorm to each input map (mmdet's Swin norms its outputs), named in_norm.N.
  bool norm_in = false;
};
// Parameters lateral.N (1x1), output.N (3x3), p6, p7. Each map is resized (nearest) and added to the next
// finer one.
class Fpn final : public PyramidNeck {
 public:
  explicit Fpn(const FpnOptions& options);
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps) override;
  std::vector<int64_t> strides() const override;
  int64_t macs(Extent image) const override;

 private:
  FpnOptions options_;
  std::vector<nn::LayerNorm> in_norms_;
  std::vector<NormedConv> lateral_, output_;
  NormedConv p6_{nullptr}, p7_{nullptr};
};

// Maps of 1/4, 1/2, 1 and 2 times the stride of the input, and every second cell of the last. Parameters have
// detectron2's names: simfp_2.0, …, numbered by the logarithm of the stride.
struct SimplePyramidOptions {
  int64_t in = 768, stride = 16, width = 256;
  std::vector<double> scales = {4, 2, 1, 0.5};
  ConvNormKind norm = ConvNormKind::layer;
  bool top = true;
};
class SimplePyramid final : public PyramidNeck {
 public:
  explicit SimplePyramid(const SimplePyramidOptions& options);
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& maps) override;
  std::vector<int64_t> strides() const override;
  int64_t macs(Extent image) const override;

 private:
  struct Level {
    double scale = 1;
    nn::DoublingConvolution first{nullptr}, second{nullptr};
    nn::LayerNorm norm{nullptr};
    NormedConv narrow{nullptr}, smooth{nullptr};
  };
  SimplePyramidOptions options_;
  std::vector<Level> levels_;
};

}  // namespace tessera::models
