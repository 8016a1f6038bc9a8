// VisionLLaMA, plain (Chu et al. 2024, "VisionLLaMA: a unified LLaMA backbone for vision tasks"). Parameters
// have the names of the published code.
//
//   y  = x + gamma_1 * attention(norm(x))     q and k rotated by 2-D RoPE, the same in all heads
//   x' = y + gamma_2 * swiglu(norm(y))
//   scores = head(norm(x_L)[class token])     or head(norm(mean of the tokens))
// AS2DRoPE multiplies all positions by rope_anchor / height, so that any image spans the range seen in
// training.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/patch_mask.h"
#include "models/base/residual_block.h"
#include "models/base/rotary.h"
#include "models/base/windows.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"

namespace tessera::models::visionllama {
namespace {

enum class Positions { none, learned, sincos };
enum class RopeGrid { input, square };

}  // namespace
}  // namespace tessera::models::visionllama

template <>
struct tessera::EnumNames<tessera::models::visionllama::Positions> {
  static constexpr std::array names = {"none", "learned", "sincos"};
};
template <>
struct tessera::EnumNames<tessera::models::visionllama::RopeGrid> {
  static constexpr std::array names = {"input", "square"};
};

namespace tessera::models::visionllama {
namespace {

struct Config : IsotropicSettings, RotarySettings, WindowSettings {
  static constexpr bool kHeadBatchNorm = true;
  int64_t mlp_hidden = 0;
  bool class_token = true, norm_before_mean = false, token_norm = false, final_norm = true, qkv_bias = true;
  NormKind norm = NormKind::layer;
  MlpKind mlp = MlpKind::swiglu;
  Positions positions = Positions::none;
  double mlp_ratio = 4, init_values = 1e-4;
  RopeGrid rope_grid = RopeGrid::input;
  double rope_scale = 1, rope_ntk_scale = 1, rope_ntk_factor = 1;
  bool auto_scale = false, peg = false;
  double rope_anchor = 224, class_position = -1;

  Config() { dim = 384, heads = 6; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("class_token", class_token, "read a learned token before the patches, else the mean of the patches");
    v("norm_before_mean", norm_before_mean,
      "without class token: norm, then mean (published 1-D model), else mean first");
    v("token_norm", token_norm,
      "without class token: a norm of all tokens before the mean and one after it (mmpretrain's final_norm)");
    v("final_norm", final_norm, "the norm before the head (published segmentation backbone: without)");
    v("norm", norm, choice<NormKind>(), "in the blocks and before the head");
    v("mlp", mlp, choice<MlpKind>(), "swiglu_packed: one matrix, biases (the masked pre-training code)");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the gelu MLP as a multiple of dim");
    v("mlp_hidden", mlp_hidden, kHidden, "hidden width of the MLP, 0 = mlp_ratio or LLaMA's rule");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("init_values", init_values, "first value of layer scale, 0 = none");
    v("positions", positions, choice<Positions>(), "absolute positions in addition to RoPE");
    v("peg", peg, "conditional positional encoding after the first block (Chu et al. 2021)");
    visit_rope(v);
    v("rope_scale", rope_scale, "factor of all positions");
    v("rope_ntk_scale", rope_ntk_scale, above(0),
      "NTK-aware scaling of the base: theta * (f s - (f - 1))^(d / (d - 2))");
    v("rope_ntk_factor", rope_ntk_factor, "f of that formula");
    v("rope_grid", rope_grid, choice<RopeGrid>(),
      "columns of the grid: the input's, or the root of the number of patches (published code)");
    v("auto_scale", auto_scale, "AS2DRoPE: positions times rope_anchor / image height");
    v("rope_anchor", rope_anchor, above(0), "image height in pixels at which positions are not scaled");
    v("class_position", class_position,
      "x and y of the class token, -1 = the result of floor division for index -1");
    visit_windows(v);
    visit_drop_path(v);
  }

  ResidualBlockOptions block(int64_t index, double drop) const {
    return {.dim = dim,
            .norm = norm,
            .mlp = mlp,
            .hidden = mlp_hidden > 0 ? mlp_hidden : default_hidden(mlp, dim, mlp_ratio),
            .init_values = init_values,
            .drop_path = drop,
            .index = index,
            .name = "blocks." + std::to_string(index)};
  }

  void check() const {
    check_size();
    check_rope(dim, heads);
    check_windows(depth);
    if (norm_before_mean && class_token) fail_usage("model.norm_before_mean goes with class_token = false");
    if (token_norm && (class_token || norm_before_mean))
      fail_usage("model.token_norm goes with class_token = false and norm_before_mean = false");
    if (auto_scale && rope_scaling != nn::RopeScalingKind::none)
      fail_usage("model.rope_scaling goes with auto_scale = false: both adapt to larger grids");
    if (positions == Positions::sincos && dim % 4 != 0)
      fail_usage("model.positions = \"sincos\" needs dim to be a multiple of 4");
  }
};

class VisionLlama final : public IsotropicBackbone, public MasksPatches {
 public:
  explicit VisionLlama(const Config& config) : config_(config), prefix_(config.class_token ? 1 : 0) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    if (config.class_token) cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    // The table always has an entry for a class token, as in the published checkpoints.
    const int64_t entries = 1 + rows_ * columns_;
    if (config.positions == Positions::learned)
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, entries, config.dim}));
    if (config.positions == Positions::sincos) pos_embed_ = register_buffer("pos_embed", fixed_positions());
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, 0, true, config.in_channels));
    if (config.token_norm) token_norm_ = register_norm(*this, "token_norm", config.norm, config.dim);
    if (config.final_norm) norm_ = register_norm(*this, "norm", config.norm, config.dim);
    reserve_heads();
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<AttentionBlock>(config.block(i, rates[static_cast<size_t>(i)]),
                                                         config.heads, config.qkv_bias));
      add_block(blocks_.back());
    }
    add_conv_blocks(config, config.dim);
    if (config.peg) peg_ = register_module("peg", nn::ConditionalPositions(config.dim));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }
  std::string keep_refusal() const override {
    if (config_.window_size > 0) return "model.window_size cuts the whole map into windows";
    if (!config_.conv_blocks.empty()) return "model.conv_blocks read the neighbours of every patch";
    return peg_ ? "model.peg = true reads the neighbours of every patch" : "";
  }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t patches = config_.patches(height, width);
    int64_t total = patch_embed_->macs(height, width);
    const int64_t rows = height / config_.patch_size, columns = width / config_.patch_size;
    for (size_t i = 0; i < blocks_.size(); ++i)
      total += blocks_[i]->macs(rows, columns, config_.window_of(static_cast<int64_t>(i)), prefix_);
    return total + patches * (conv_block_macs() + (peg_ ? peg_->macs() : 0));
  }

  std::vector<std::string> no_weight_decay() const override { return {"pos_embed", "cls_token"}; }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined()) return {};
    return nn::fit_square_tokens(stored, 1, rows_, columns_, config_.dim, nn::Resample::bicubic_antialias);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = with_mask_tokens(patch_embed_(images));
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    torch::Tensor x = patches.reshape({batch, rows * columns, config_.dim});
    if (prefix_) x = torch::cat({cls_token_.expand({batch, -1, -1}), x}, 1);
    if (pos_embed_.defined())
      x = x +
          nn::resample_tokens(pos_embed_, 1, rows_, columns_, rows, columns, nn::Resample::bicubic_antialias)
              .slice(1, 1 - prefix_);
    Tokens tokens;
    tokens.x = x;
    tokens.rows = rows, tokens.columns = columns, tokens.before = prefix_;
    tokens.extras.rotation = rotation(rows, columns, images.size(2), prefix_);
    return tokens;
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (ConvBottleneck::first_values(name, parameter, fill)) return;
    if (name.starts_with("patch_embed.proj."))
      fill.fan_in_uniform(config_.in_channels * config_.patch_size * config_.patch_size);
    else if (name.starts_with("peg.proj."))
      fill.fan_in_uniform(9);
    else if (name == "pos_embed" || name == "cls_token" || parameter.dim() == 2)
      fill.truncated_normal(0.02);
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    const auto& block = blocks_[static_cast<size_t>(index)];
    const int64_t side = config_.window_of(index);
    if (side == 0) return block->forward(x, tokens.extras, context);
    // A window has the positions of an image of the window's size.
    return block->forward_in_windows(
        x, tokens, {side, {.rotation = rotation(side, side, side * config_.patch_size, 0)}}, context);
  }

  torch::Tensor after_block(int64_t index, const torch::Tensor& x, const Tokens& tokens) override {
    if (!peg_ || index > 0) return x;
    return torch::cat({x.slice(1, 0, prefix_), peg_(x.slice(1, prefix_), tokens.rows, tokens.columns)}, 1);
  }

  // Applies the norm of all tokens, if the model has both this norm and another one after the mean.
  torch::Tensor norm_tokens(const torch::Tensor& last) override {
    return token_norm_ ? token_norm_(last) : last_norm(last);
  }

  torch::Tensor read(const torch::Tensor& x, const TokenPlaces&, const Context&) override {
    if (prefix_) return last_norm(x).select(1, 0);
    if (config_.norm_before_mean) return last_norm(x).mean(1);
    return last_norm((token_norm_ ? token_norm_(x) : x).mean(1));
  }

 private:
  torch::Tensor last_norm(const torch::Tensor& x) { return norm_ ? norm_(x) : x; }

  torch::Tensor fixed_positions() const {
    if (nn::ShapesOnly::active()) return nn::zeros({1, 1 + rows_ * columns_, config_.dim});
    return torch::cat({torch::zeros({1, config_.dim}), nn::sincos_2d(rows_, columns_, config_.dim)})
        .unsqueeze(0);
  }

  // Returns the rotation for a map of these sides from an image of this height, after `prefix` non-patch
  // tokens.
  nn::Rotation rotation(int64_t rows, int64_t columns, int64_t height, int64_t prefix) const {
    const int64_t channels = config_.rope_channels(config_.dim, config_.heads), patches = rows * columns;
    if (channels == 0) return {};
    const double exponent =
        static_cast<double>(channels) / static_cast<double>(std::max<int64_t>(channels - 2, 1));
    const double ntk = config_.rope_ntk_factor * config_.rope_ntk_scale - (config_.rope_ntk_factor - 1);
    const double theta = config_.rope_theta * std::pow(ntk, exponent);
    double scale = config_.rope_scale;
    if (config_.auto_scale) scale *= config_.rope_anchor / static_cast<double>(height);
    const bool square = config_.rope_grid == RopeGrid::square;
    const int64_t wide = square ? static_cast<int64_t>(std::sqrt(static_cast<double>(patches))) : columns;
    nn::GridPositions at = nn::grid_positions(-prefix, patches, wide);
    at.x = at.x * scale;
    at.y = at.y * scale;
    if (prefix > 0 && config_.rope == Rope::two_axes && config_.class_position != -1) {
      at.x[0] = config_.class_position;
      at.y[0] = config_.class_position;
    }
    return config_.rotation(at, wide, config_.dim, config_.heads, theta,
                            config_.scaling(config_.grid(), {rows, columns}));
  }

  Config config_;
  int64_t prefix_, rows_ = 0, columns_ = 0;
  torch::Tensor cls_token_, pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  Norm token_norm_, norm_;
  std::vector<std::shared_ptr<AttentionBlock>> blocks_;
  nn::ConditionalPositions peg_{nullptr};
};

// The published segmentation backbone: no norm after the last block, no head.
Value segmentation(Value settings) {
  settings.set("final_norm", false);
  settings.set("classes", 0);
  return settings;
}

Value size(int64_t dim, int64_t depth, int64_t heads, bool auto_scale = false) {
  return table({{"dim", dim}, {"depth", depth}, {"heads", heads}, {"auto_scale", auto_scale}});
}

// The encoder of the published masked pre-training: no class token in its blocks, no layer scale, no head.
// In that code the MLP is widened twice.
Value masked_pretraining(int64_t dim, int64_t depth, int64_t heads, int64_t hidden) {
  return table({{"dim", dim},
                {"depth", depth},
                {"heads", heads},
                {"classes", 0},
                {"class_token", false},
                {"mlp", "swiglu_packed"},
                {"mlp_hidden", hidden},
                {"init_values", 0.0}});
}

}  // namespace

Family family() {
  Family family = make_family<VisionLlama, Config>(
      "visionllama", "VisionLLaMA, plain: 2-D RoPE and SwiGLU",
      {
          {"visionllama_small_patch16_224", {"vit_llama_rope_small_patch16"}, size(384, 12, 6)},
          {"visionllama_base_patch16_224", {"vit_llama_rope_base_patch16"}, size(768, 12, 12)},
          {"visionllama_large_patch16_224", {"vit_llama_rope_large_patch16"}, size(1024, 24, 16)},
          {"visionllama_large_as_patch16_224", {"vit_llama_rope_large_as_patch16"}, size(1024, 24, 16, true)},
          {"visionllama_base_mae_patch16_224", {"mae_lama-base-p16"}, masked_pretraining(768, 12, 12, 8192)},
          {"visionllama_large_mae_patch16_224",
           {"mae_lama-large-p16"},
           masked_pretraining(1024, 24, 16, 11008)},
          {"visionllama_base_seg_patch16_224", {}, segmentation(size(768, 12, 12))},
      });
  family.preprocess = table({{"crop", 1.0}});  // Table 13
  return family;
}

}  // namespace tessera::models::visionllama
