// Backbones with one grid from the first block to the last. A family provides the tokens, the block and the
// read-out. The base class runs the blocks, with checkpointing, taps, maps and the selection of tokens.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <string>
#include <vector>

#include "models/base/encoder.h"
#include "models/base/family.h"
#include "nn/attention.h"

namespace tessera::models {

// The settings that all of them have. A family's Config derives from these, changes defaults in its
// constructor, and lists its own settings in visit() between visit_size() and visit_drop_path().
struct IsotropicSettings : DropPathSettings {
  Value image_size = 224;
  int64_t in_channels = 3, patch_size = 16, dim = 192, depth = 12, heads = 3;

  template <class V>
  void visit_size(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, kPatchSize, "side of a patch in pixels");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
  }
  void check_size() const;
  Extent grid() const;  // patches of image_size
  int64_t patches(int64_t height, int64_t width) const {
    return (height / patch_size) * (width / patch_size);
  }
};

struct WindowSettings;
class ConvBottleneck;

class IsotropicBackbone : public Backbone, public TokenEncoder {
 public:
  torch::Tensor embed(const torch::Tensor& images, const Context& context) override;
  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                      const Context& context) override;
  int64_t block_count() const override { return static_cast<int64_t>(blocks_.size()); }
  std::vector<std::vector<torch::Tensor>> units() const override;
  Tokens keep(const Tokens& tokens, const torch::Tensor& index) const override;
  Encoded encode(const Tokens& tokens, const Context& context, const std::vector<int64_t>& blocks) override;
  torch::Tensor last_norm(const torch::Tensor& last) override { return norm_tokens(last); }
  torch::Tensor pool(const Encoded& encoded, const Context& context) override;

 protected:
  // Runs one block on x [batch, tokens, width]; x may be recomputed for its gradient.
  virtual torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                                  const Context& context) = 0;
  // Returns the condition of the blocks if the context has none; `like` has the batch and the device.
  virtual torch::Tensor usual_condition(const torch::Tensor& /*like*/) { return {}; }
  // Runs a layer after a block; unlike the block it is not recomputed (conditional positions).
  virtual torch::Tensor after_block(int64_t /*index*/, const torch::Tensor& x, const Tokens& /*tokens*/) {
    return x;
  }
  // Applies the norm after the last block to all tokens.
  virtual torch::Tensor norm_tokens(const torch::Tensor& last) = 0;
  // Returns the vector that a class head reads, from the tokens after the last block, before the norm.
  virtual torch::Tensor read(const torch::Tensor& last, const TokenPlaces& places,
                             const Context& context) = 0;
  // Registers a block under "blocks".
  void add_block(const std::shared_ptr<torch::nn::Module>& block);
  // Returns the parameters of a block's unit.
  virtual std::vector<torch::Tensor> parameters_of_block(int64_t index) const {
    return blocks_[static_cast<size_t>(index)]->parameters();
  }
  // Registers "residual" in the blocks that a bottleneck of convolutions follows; called after all blocks
  // exist.
  void add_conv_blocks(const WindowSettings& windows, int64_t dim);
  int64_t conv_block_macs() const;  // per patch
  // Runs all blocks; `outputs` receives the tokens after each.
  torch::Tensor run(const Tokens& tokens, const Context& context,
                    std::vector<torch::Tensor>* outputs = nullptr);

 private:
  // Returns the maps of these blocks from the tokens after each.
  std::vector<torch::Tensor> maps_of(const std::vector<torch::Tensor>& outputs,
                                     const std::vector<int64_t>& blocks, const TokenPlaces& places) const;
  void check_blocks(const std::vector<int64_t>& blocks) const;
  torch::Tensor after_convolutions(int64_t index, const torch::Tensor& x, const TokenPlaces& places) const;

  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;
  std::vector<std::shared_ptr<ConvBottleneck>> convolutions_;  // one per block, null = none
  torch::nn::ModuleList list_{nullptr};
};

}  // namespace tessera::models
