// Twins-SVT (Chu et al. 2021, "Twins: revisiting the design of spatial attention in vision transformers").
// Names of parameters and sizes are timm's.
//
//   a stage: patches of the map before, a norm, then blocks  x' = x + LSA or GSA(norm(x)),  x'' = x' +
//   mlp(norm(x')) behind its first block  x + depthwise 3x3 convolution of x  (conditional positions) scores
//   = head(mean over the tokens of norm(x_L))
#include "core/error.h"
#include "models/twins_stages.h"

namespace tessera::models {
namespace {

struct Config {
  Value image_size = 224;
  int64_t patch_size = 4, classes = 1000;
  std::vector<int64_t> dims = {64, 128, 256, 512}, depths = {2, 2, 10, 4}, heads = {2, 4, 8, 16},
                       windows = {7, 7, 7, 7}, sub_sampling = {8, 4, 2, 1};
  double mlp_ratio = 4;
  bool qkv_bias = true;
  double drop_path = 0;
  bool drop_path_decay = true;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch of the first stage in pixels; the others halve the grid");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dims", dims, "width of a token, a stage each");
    v("depths", depths, "blocks");
    v("heads", heads, "attention heads");
    v("windows", windows, "side of the windows of every second block, 0 = global attention in all");
    v("sub_sampling", sub_sampling, "cells along a side that share a key of global attention");
    v("mlp_ratio", mlp_ratio, "hidden width of the MLP as a multiple of the token's");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first block to drop_path at the last, else the same for all");
  }

  void check() const {
    check_stages(image_size, patch_size, dims, depths, heads, windows, sub_sampling);
    check_rate("drop_path", drop_path);
    if (classes < 0 || mlp_ratio <= 0)
      fail_usage("model.classes must not be negative, model.mlp_ratio must be positive");
  }

  TwinsPlan plan() const {
    TwinsPlan plan{.patch_size = patch_size,
                   .classes = classes,
                   .dims = dims,
                   .depths = depths,
                   .heads = heads,
                   .windows = windows,
                   .sub_sampling = sub_sampling,
                   .hidden = {},
                   .drop_path = drop_path,
                   .drop_path_decay = drop_path_decay,
                   .pegs = "pos_block",
                   .nested_pegs = true};
    for (const int64_t dim : dims) plan.hidden.push_back(default_hidden("gelu", dim, mlp_ratio));
    plan.block.residual.mlp = "gelu";
    plan.block.qkv_bias = qkv_bias;
    return plan;
  }
};

class TwinsSvt final : public TwinsBackbone {
 public:
  explicit TwinsSvt(const Config& config) : TwinsBackbone(config.plan()) {}

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names;
    for (const auto& entry : named_parameters())
      if (entry.key().starts_with("pos_block.")) names.push_back(entry.key());
    return names;
  }

 protected:
  torch::Tensor read(const torch::Tensor& x) override { return norm_(x).mean({1, 2}); }
};

}  // namespace

Family twins_family() {
  return make_family<TwinsSvt, Config>(
      "twins_svt", "Twins-SVT: attention inside windows and to sub-sampled keys, four stages",
      {
          {"twins_svt_small", {}, stages_table({64, 128, 256, 512}, {2, 2, 10, 4}, {2, 4, 8, 16})},
          {"twins_svt_base", {}, stages_table({96, 192, 384, 768}, {2, 2, 18, 2}, {3, 6, 12, 24})},
          {"twins_svt_large", {}, stages_table({128, 256, 512, 1024}, {2, 2, 18, 2}, {4, 8, 16, 32})},
      });
}

}  // namespace tessera::models
