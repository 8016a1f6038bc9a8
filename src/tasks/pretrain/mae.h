// Masked auto-encoding (He et al. 2022, "Masked autoencoders are scalable vision learners"): the encoder sees
// a part of the patches, and a light decoder predicts the pixels of the others.
//
//   visible, masked = a random split of the patches, with a share `mask_ratio` masked
//   y = decoder([encoder(visible) W, mask tokens] in grid order + positions)
//   loss = mean over masked patches of mean over pixels of (y - t)^2
// t are the patch's pixels; with `normalise_pixels` minus their mean, divided by their deviation.
//
// With `fuse`, the tokens after inner blocks i join those of the last block before its norm (Liu et al. 2023, "Improving
// pixel-based MIM by reducing wasted modeling capability", MFF):
//
//   z = norm(sum over the levels of softmax(w)_i P_i x_i),  P_i linear, the identity for the last block
//
// A sample is an image. Any backbone that can skip some of its patches (models/base/encoder.h) is an encoder.
// The decoder's parameters have the names of the published files.
#pragma once

#include "models/base/encoder.h"
#include "models/heads/mae_decoder.h"
#include "nn/linear.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

struct MaeConfig {
  double mask_ratio = 0.75;
  bool normalise_pixels = true;
  int64_t decoder_dim = 512, decoder_depth = 8, decoder_heads = 16;
  bool late_class_token = false;
  std::vector<int64_t> fuse = {};
  template <class V>
  void visit(V& v) {
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "share of the patches that the encoder does not see");
    v("normalise_pixels", normalise_pixels, "predict each patch less its mean, divided by its deviation");
    v("decoder_dim", decoder_dim, between(4, 65536), "width of the decoder's tokens");
    v("decoder_depth", decoder_depth, between(0, 1000), "blocks of the decoder");
    v("decoder_heads", decoder_heads, between(1, 1024), "attention heads of the decoder");
    v("late_class_token", late_class_token,
      "VisionLLaMA's code: a class token joins the patches after the last block, before its norm, and the "
      "decoder's positions encode the row first");
    v("fuse", fuse, between(0, 1000),
      "inner blocks, counted from 0: their tokens join those of the last one (MFF: [0, 2, 4, 6, 8])");
  }
};

// Parameters proj_layers.N and proj_weights [levels].
class LevelFusion final : public torch::nn::Module {
 public:
  LevelFusion(std::vector<int64_t> blocks, int64_t width);
  void initialise(uint64_t seed);
  const std::vector<int64_t>& blocks() const { return blocks_; }
  // Maps the tokens after those blocks and the last one, each [batch, tokens, width], to the same shape.
  torch::Tensor forward(const std::vector<torch::Tensor>& levels) const;
  int64_t macs(int64_t tokens) const;

 private:
  std::vector<int64_t> blocks_;
  std::vector<nn::Linear> layers_;
  torch::Tensor weights_;
};

// The result of one pass over images. `order` [batch, patches] int64 permutes the patches of the grid; the
// encoder sees the first `visible`.
struct MaePass {
  torch::Tensor latent =
      {};  // [batch, tokens, width], after the last norm: prefix tokens, then visible patches
  torch::Tensor predicted = {};  // [batch, patches, 3 patch^2], in grid order
};
MaePass mae_pass(models::TokenEncoder& encoder, models::MaeDecoder& decoder, const torch::Tensor& images,
                 const torch::Tensor& order, int64_t visible, const models::Context& context,
                 const LevelFusion* fusion = nullptr);
// Returns the prediction targets, [batch, patches, 3 patch^2].
torch::Tensor mae_targets(const torch::Tensor& images, int64_t patch, bool normalise);
// Returns the loss of each sample over its masked patches [batch, masked] int64: [batch].
torch::Tensor mae_loss(const torch::Tensor& predicted, const torch::Tensor& targets,
                       const torch::Tensor& masked);

TaskKind mae_kind();

}  // namespace tessera::tasks
