// The stages of Twins-SVT (Chu et al. 2021, "Twins: revisiting the design of spatial attention in vision
// transformers"), which pyramid VisionLLaMA keeps. Blocks that attend inside windows (LSA) alternate with
// blocks that attend from all tokens to sub-sampled keys (GSA).
#pragma once

#include <string>
#include <vector>

#include "models/base/pyramid.h"
#include "models/base/residual_block.h"
#include "models/base/rotary.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"

namespace tessera::models {

// The settings that both families share.
struct TwinsSettings : PyramidSettings {
  std::vector<int64_t> windows = {7, 7, 7, 7}, sub_sampling = {8, 4, 2, 1};

  template <class V>
  void visit_stages(V& v) {
    PyramidSettings::visit_stages(v);
    v("windows", windows, between(0, 1024),
      "side of the windows of every second block, 0 = global attention in all");
    v("sub_sampling", sub_sampling, between(1, 1024),
      "cells along a side that share a key of global attention");
  }
  void check_stages() const;
  int64_t smallest_side() const;  // the smallest image side at which every stage has a key
};

// The rotation of queries and keys by position.
struct TwinsRope {
  RotarySettings rotary{.rope = Rope::none};
  double query_theta = 10000, key_theta = 10000;  // for global attention
  // True: GSA's key for cells sr i … sr i + sr - 1 has their mean position. Else (published code) its
  // position is sr i + 1 - 1 / sr, and key indices are split into rows and columns by the width of the
  // queries' grid.
  bool mean_keys = false;
  double anchor = 0;         // AS2DRoPE: positions times anchor / rows of the grid, 0 = unscaled
  bool scale_local = false;  // inside windows too
  Extent built = {};         // the stage's grid at image_size, the reference of rope_scaling
};

struct TwinsBlockOptions {
  ResidualBlockOptions residual = {};
  int64_t heads = 1;
  int64_t window = 7;        // side of a window, 0 = global attention
  int64_t sub_sampling = 1;  // global attention: cells along a side that share a key
  bool qkv_bias = true;
  TwinsRope rope = {};
};

// Attention from every token to keys that each summarise sub_sampling x sub_sampling cells (GSA). Parameters
// q, kv, proj, and with sub_sampling > 1 the convolution sr followed by a LayerNorm norm.
class SubsampledAttentionImpl : public torch::nn::Module {
 public:
  SubsampledAttentionImpl(int64_t width, int64_t heads, int64_t sub_sampling, bool qkv_bias);
  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& extras,
                        const nn::Epilogue& epilogue);
  int64_t macs(int64_t rows, int64_t columns) const;

 private:
  int64_t heads_, sub_sampling_;
  nn::Linear q_{nullptr}, kv_{nullptr}, proj_{nullptr};
  torch::Tensor sr_weight_, sr_bias_;
  std::shared_ptr<ops::LinearCache> sr_cache_ = std::make_shared<ops::LinearCache>();
  nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(SubsampledAttention);

class TwinsBlock : public ResidualBlock {
 public:
  explicit TwinsBlock(const TwinsBlockOptions& options);
  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const Context& context);
  int64_t macs(int64_t rows, int64_t columns) const;

 private:
  torch::Tensor attend_in_windows(const torch::Tensor& x, const Context& context,
                                  const nn::Epilogue& epilogue);
  torch::Tensor attend_globally(const torch::Tensor& x, const Context& context, const nn::Epilogue& epilogue);
  // Returns the rotation of tokens at these positions, times `scale`, in a grid with `columns` columns.
  nn::Rotation rotation(const nn::GridPositions& at, int64_t columns, double scale, double theta,
                        const nn::RopeScaling& scaling) const;
  int64_t dim_, heads_, window_, sub_sampling_;
  TwinsRope rope_;
  nn::Attention local_{nullptr};
  SubsampledAttention global_{nullptr};
};

// A family's layout from its settings; vectors have one entry per stage.
struct TwinsPlan {
  TwinsSettings settings = {};
  std::vector<int64_t> hidden = {};   // width inside the MLPs
  TwinsBlockOptions block = {};       // shared by all blocks; the rest is set for each
  std::vector<TwinsRope> ropes = {};  // empty = none
  std::string pegs = {};              // list of conditional positions after the first blocks, "" = none
  bool nested_pegs = false;
  bool final_norm = true;
};
// Returns the plan of blocks with this MLP.
TwinsPlan plan_stages(const TwinsSettings& settings, MlpKind mlp);

// Parameters patch_embeds, blocks, norm, and conditional positions if any.
class TwinsBackbone : public PyramidBackbone {
 public:
  int64_t embed_width() const override { return plan_.settings.dims.back(); }
  int64_t macs(int64_t height, int64_t width) const override;

 protected:
  explicit TwinsBackbone(TwinsPlan plan);
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override;
  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override;
  torch::Tensor after_block(int64_t stage, int64_t index, const torch::Tensor& x) override;
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override;
  const TwinsPlan& plan() const { return plan_; }

  Norm norm_;

 private:
  // The patch embedding and its LayerNorm.
  class StageEmbed : public nn::PatchEmbedImpl {
   public:
    StageEmbed(int64_t patch, int64_t channels, int64_t width);
    torch::Tensor forward(const torch::Tensor& images) { return norm_(nn::PatchEmbedImpl::forward(images)); }

   private:
    nn::LayerNorm norm_{nullptr};
  };

  TwinsPlan plan_;
  std::vector<std::shared_ptr<StageEmbed>> embeds_;
  std::vector<std::vector<std::shared_ptr<TwinsBlock>>> blocks_;
  std::vector<nn::ConditionalPositions> pegs_;
};

// Returns the settings of a published size: dims, depths and heads of its stages.
Value stages_table(const std::vector<int64_t>& dims, const std::vector<int64_t>& depths,
                   const std::vector<int64_t>& heads);

}  // namespace tessera::models
