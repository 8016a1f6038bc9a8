// Backbones whose tokens stay on one grid from the first block to the last. A family gives the tokens, the
// block and the read-out; running, checkpointing, taps and maps are here.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <string>
#include <vector>

#include "models/family.h"
#include "models/headed.h"
#include "nn/attention.h"

namespace tessera::models {

// The settings that all of them have. A family's Config derives from these, changes defaults in its
// constructor, and names its own settings in visit() between visit_size() and visit_drop_path().
struct IsotropicSettings : DropPathSettings {
  Value image_size = 224;
  int64_t patch_size = 16, classes = 1000, dim = 192, depth = 12, heads = 3;

  template <class V>
  void visit_size(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch in pixels");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dim", dim, "width of a token");
    v("depth", depth, "blocks");
    v("heads", heads, "attention heads");
  }
  void check_size() const;
  Extent grid() const;  // patches of image_size
  int64_t patches(int64_t height, int64_t width) const {
    return (height / patch_size) * (width / patch_size);
  }
};

class IsotropicBackbone : public HeadedBackbone {
 public:
  torch::Tensor embed(const torch::Tensor& images, const Context& context) override;
  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                      const Context& context) override;
  int64_t block_count() const override { return static_cast<int64_t>(blocks_.size()); }

 protected:
  // What goes into the first block, and what every block is told besides.
  struct Tokens {
    torch::Tensor x = {};  // [batch, before + rows * columns + behind, width]
    int64_t rows = 0, columns = 0;
    int64_t before = 0, behind = 0;  // tokens that are not patches
    nn::AttentionExtras extras = {};
  };
  virtual Tokens start(const torch::Tensor& images, const Context& context) = 0;
  virtual torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                                  const Context& context) = 0;
  // What stands behind a block without being recomputed with it (conditional positions).
  virtual torch::Tensor after_block(int64_t /*index*/, const torch::Tensor& x, const Tokens& /*tokens*/) {
    return x;
  }
  // The vector that the head reads, from the tokens after the last block.
  virtual torch::Tensor read(const torch::Tensor& x, const Tokens& tokens, const Context& context) = 0;
  // Registers a block under "blocks".
  void add_block(const std::shared_ptr<torch::nn::Module>& block);
  // Runs all blocks; `outputs` takes the tokens after each.
  torch::Tensor run(const Tokens& tokens, const Context& context,
                    std::vector<torch::Tensor>* outputs = nullptr);
  // The patches' tokens as [batch, width, rows, columns].
  virtual torch::Tensor to_map(const torch::Tensor& x, const Tokens& tokens) const;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;
  torch::nn::ModuleList list_{nullptr};
};

}  // namespace tessera::models
