// Backbones with a grid that shrinks from stage to stage. A family provides the input of a stage, its blocks
// and the read-out. The base class runs the blocks, with checkpointing, taps and maps. features() counts
// stages.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <vector>

#include "models/base/family.h"

namespace tessera::models {

// The settings that all of them have; lists have one entry per stage. A family's Config derives from these,
// as it would from IsotropicSettings.
struct PyramidSettings : DropPathSettings {
  Value image_size = 224;
  int64_t in_channels = 3;
  int64_t patch_size = 4;
  std::vector<int64_t> dims = {64, 128, 256, 512}, depths = {2, 2, 10, 4}, heads = {2, 4, 8, 16};
  double mlp_ratio = 4;
  bool qkv_bias = true;

  template <class V>
  void visit_stages(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, kPatchSize,
      "side of a patch of the first stage in pixels; the others halve the grid");
    v("dims", dims, kWidth, "width of a token in each stage");
    v("depths", depths, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
  }
  void check_stages() const;
  // Returns the rate of every block, stage after stage.
  std::vector<double> drop_path_rates() const;
};

class PyramidBackbone : public Backbone {
 public:
  torch::Tensor embed(const torch::Tensor& images, const Context& context) override;
  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& stages,
                                      const Context& context) override;
  int64_t block_count() const override { return static_cast<int64_t>(blocks_.size()); }
  std::vector<std::vector<torch::Tensor>> units() const override;

 protected:
  // Returns the input of a stage's first block, [batch, rows, columns, width]; `before` are the images (stage
  // 0) or the output of the previous stage.
  virtual torch::Tensor enter(int64_t stage, const torch::Tensor& before) = 0;
  virtual torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                                  const Context& context) = 0;
  // Runs a layer after a block; unlike the block it is not recomputed (conditional positions).
  virtual torch::Tensor after_block(int64_t /*stage*/, int64_t /*index*/, const torch::Tensor& x) {
    return x;
  }
  // Returns the output of a stage, for the next one and for features().
  virtual torch::Tensor leave(int64_t /*stage*/, const torch::Tensor& x) { return x; }
  // Returns the vector that the head reads, from the output of the last stage.
  virtual torch::Tensor read(const torch::Tensor& x) = 0;

  // Registers a block as "blocks.<stage>.<index>"; call it in the order of the stages.
  void add_block(int64_t stage, const std::shared_ptr<torch::nn::Module>& block);
  // Like add_block(), for a block that the family registers itself.
  void keep_block(int64_t stage, const std::shared_ptr<torch::nn::Module>& block);

 private:
  std::vector<torch::Tensor> run(const torch::Tensor& images, int64_t stages, const Context& context);
  std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> blocks_;
  torch::nn::ModuleList list_{nullptr};
  std::vector<torch::nn::ModuleList> lists_;
};

}  // namespace tessera::models
