// The stages of Twins-SVT (Chu et al. 2021, "Twins: revisiting the design of spatial attention in vision
// transformers"), which pyramid VisionLLaMA keeps: blocks that attend inside windows (LSA) and blocks that
// attend from all tokens to sub-sampled keys (GSA) alternate.
#pragma once

#include <string>
#include <vector>

#include "models/pyramid.h"
#include "models/residual_block.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"

namespace tessera::models {

// How queries and keys are turned by position; not at all with channels == 0.
struct TwinsRope {
  int64_t channels = 0;  // that are turned: of a head, or of all heads together if not shared
  bool shared = true;    // one table for all heads, else one over the whole width, a piece a head
  bool flat = false;     // 1-D positions: the index along the rows
  double theta = 10000, query_theta = 10000, key_theta = 10000;  // in windows; global queries and keys
  // GSA's key for cells sr i … sr i + sr - 1 stands at their mean; else (published code) at sr i + 1 - 1 /
  // sr, and the grid of keys is read with as many columns as the queries' grid has.
  bool mean_keys = false;
  double anchor = 0;         // AS2DRoPE: positions times anchor / rows of the grid, 0 = as they are
  bool scale_local = false;  // inside windows too
};

struct TwinsBlockOptions {
  ResidualBlockOptions residual = {};
  int64_t heads = 1;
  int64_t window = 7;        // side of a window, 0 = global attention
  int64_t sub_sampling = 1;  // global attention: cells along a side that share a key
  bool qkv_bias = true;
  TwinsRope rope = {};
};

// Attention from every token to keys that stand for sub_sampling x sub_sampling cells each (GSA). Parameters
// q, kv, proj, and with sub_sampling > 1 the convolution sr and a LayerNorm norm behind it.
class SubsampledAttentionImpl : public torch::nn::Module {
 public:
  SubsampledAttentionImpl(int64_t width, int64_t heads, int64_t sub_sampling, bool qkv_bias);
  // x [batch, rows, columns, width] -> the same.
  torch::Tensor forward(const torch::Tensor& x, const nn::Rotation& queries, const nn::Rotation& keys,
                        const nn::AttentionExtras& extras, const nn::Tail& tail);
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
  // x [batch, rows, columns, width] -> the same.
  torch::Tensor forward(const torch::Tensor& x, const Context& context);
  int64_t macs(int64_t rows, int64_t columns) const;

 private:
  torch::Tensor attend_in_windows(const torch::Tensor& x, const Context& context, const nn::Tail& tail);
  torch::Tensor attend_globally(const torch::Tensor& x, const Context& context, const nn::Tail& tail);
  // The rotation of tokens at these places of a grid with `columns` columns.
  nn::Rotation rotation(const nn::GridPositions& at, int64_t columns, double scale, double theta) const;
  int64_t heads_, window_, sub_sampling_;
  TwinsRope rope_;
  nn::Attention local_{nullptr};
  SubsampledAttention global_{nullptr};
};

// Everything that the two families' settings say about the stages; vectors hold an entry a stage.
struct TwinsPlan {
  int64_t patch_size = 4, classes = 1000;
  std::vector<int64_t> dims, depths, heads, windows, sub_sampling, hidden;
  TwinsBlockOptions block = {};       // what all blocks share; the rest is filled in for each
  std::vector<TwinsRope> ropes = {};  // empty = none
  double drop_path = 0;
  bool drop_path_decay = true;
  std::string pegs = {};  // name of the list of conditional positions behind the first blocks, "" = none
  bool nested_pegs = false;
  bool final_norm = true;
};

// Parameters patch_embeds, blocks, norm, head, and conditional positions if there are any.
class TwinsBackbone : public PyramidBackbone {
 public:
  int64_t embed_width() const override { return plan_.dims.back(); }
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
  // Patches and a LayerNorm behind them.
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

// Usage errors for stage lists of different lengths, widths that are no multiple of the heads, and images
// that shrink to nothing.
void check_stages(const Value& image_size, int64_t patch_size, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& depths, const std::vector<int64_t>& heads,
                  const std::vector<int64_t>& windows, const std::vector<int64_t>& sub_sampling);

// The settings of a published size: dims, depths and heads of its stages.
Value stages_table(const std::vector<int64_t>& dims, const std::vector<int64_t>& depths,
                   const std::vector<int64_t>& heads);

// The smallest side that leaves every stage a key.
int64_t smallest_side(int64_t patch_size, const std::vector<int64_t>& sub_sampling);

}  // namespace tessera::models
