// The decoder of masked auto-encoding (He et al. 2022). A light ViT maps tokens of the visible patches, and
// one learned vector for every masked patch, to pixels. Parameters have the names of the published files.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>

#include "models/base/residual_block.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

struct MaeDecoderOptions {
  int64_t dim = 512, depth = 8, heads = 16;
  double mlp_ratio = 4;  // hidden width of the MLPs as a multiple of dim
  int64_t encoder_width = 0;
  int64_t patch = 16, rows = 14, columns = 14;
  // Adds a class token `cls_token` [1, 1, encoder_width] to the encoder's tokens after its last layer and
  // before its last norm (VisionLLaMA's code).
  bool late_class_token = false;
  // The first half of a position's channels encodes the row (mmpretrain's code), else the column (MAE's).
  bool rows_first = false;

  int64_t patches() const { return rows * columns; }
};

class MaeDecoder final : public torch::nn::Module, public nn::Stack {
 public:
  explicit MaeDecoder(const MaeDecoderOptions& options);
  void initialise(uint64_t seed);

  // Returns the predicted pixels, [batch, patches, 3 patch^2]. `front` [batch, number, width]: the encoder's
  // non-patch tokens, undefined = none. `visible` [batch, visible, width]: the tokens of the patches that it
  // saw. `place` [batch, patches] int64: each grid patch's index in [visible, masked].
  torch::Tensor forward(const torch::Tensor& front, const torch::Tensor& visible, const torch::Tensor& place,
                        const Context& context);
  const torch::Tensor& class_token() const { return cls_token_; }  // undefined without a late one
  int64_t macs() const;
  std::vector<std::vector<torch::Tensor>> units() const override { return nn::parameters_of_each(*blocks_); }

 private:
  MaeDecoderOptions options_;
  torch::Tensor cls_token_, mask_token_, positions_;
  nn::Linear embed_{nullptr}, pred_{nullptr};
  nn::LayerNorm norm_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
};

}  // namespace tessera::models
