// iLLaMA (Wang et al. 2024, "Adapting LLaMA decoder to vision transformer"): a LLaMA block on image patches,
// causal, with the class token behind the patches. Names of parameters are those of the published code.
//
//   x_0 = [patches W; class token] + positions
//   y   = x + A(rms(x))       A = (softmax(R q (R k)^T / sqrt(d)) * S) v, R: 1-D RoPE
//   x'  = y + fc2(silu(fc1 rms(y)) * fc3 rms(y))
//   scores = head(rms(x_L)[last token])
// S is the lower triangle, or softly alpha + (1 - alpha) * lower triangle early in training. The published
// code puts it behind the softmax; mask = "before" is the paper's Softmax(A + M).

#include "core/error.h"
#include "models/family.h"
#include "models/isotropic.h"
#include "models/residual_block.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "nn/position.h"

namespace tessera::models {
namespace {

struct Config : IsotropicSettings {
  std::string norm = "rms", mlp = "swiglu", mask = "after", class_token = "last", positions = "both";
  double mlp_ratio = 4, rope_theta = 10000, soft_mask = 0;
  bool qkv_bias = true;

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("norm", norm, "rms or layer");
    v("mlp", mlp, "swiglu or gelu");
    v("mlp_ratio", mlp_ratio, "hidden width of the gelu MLP as a multiple of dim");
    v("mask", mask,
      "causal mask: after the softmax (published code), before (the paper's), modified (before, but the "
      "class token sees all), none");
    v("soft_mask", soft_mask,
      "share of the bi-directional mask in training; a recipe's [soft_mask] changes it step by step");
    v("class_token", class_token, "last (behind the patches) or first");
    v("positions", positions, "rope, learned, both, or none");
    v("rope_theta", rope_theta, "base of the rotary frequencies");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    visit_drop_path(v);
  }

  bool ropes() const { return positions == "rope" || positions == "both"; }
  bool learns() const { return positions == "learned" || positions == "both"; }

  ResidualBlockOptions block(int64_t index, double drop) const {
    return {.dim = dim,
            .norm = norm,
            .mlp = mlp,
            .hidden = default_hidden(mlp, dim, mlp_ratio),
            .names = nn::kImageLlamaNames,
            .drop_path = drop,
            .index = index,
            .name = "blocks." + std::to_string(index)};
  }

  void check() const {
    check_size();
    check_choice("norm", norm, {"rms", "layer"});
    check_choice("mlp", mlp, {"swiglu", "gelu"});
    check_choice("mask", mask, {"after", "before", "modified", "none"});
    check_choice("class_token", class_token, {"last", "first"});
    check_choice("positions", positions, {"rope", "learned", "both", "none"});
    check_share("soft_mask", soft_mask, 1);
    if (mlp_ratio <= 0 || rope_theta <= 0)
      fail_usage("model.mlp_ratio and model.rope_theta must be positive");
    if (classes < 0) fail_usage("model.classes is ", classes, ", must not be negative");
    if (ropes() && dim / heads % 2 != 0)
      fail_usage("model.dim / model.heads is ", dim / heads, ", RoPE needs it even");
  }
};

class ImageLlama final : public IsotropicBackbone, public SoftMasked {
 public:
  explicit ImageLlama(const Config& config) : config_(config) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    if (config.learns())
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, rows_ * columns_ + 1, config.dim}));
    patch_embed_ = register_module("patch_embed", nn::PatchEmbed(config.patch_size, config.dim));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<AttentionBlock>(config.block(i, rates[static_cast<size_t>(i)]),
                                                         config.heads, config.qkv_bias));
      add_block(blocks_.back());
    }
    norm_ = register_norm(*this, "norm", config.norm, config.dim);
    make_head(config.classes);
  }

  int64_t embed_width() const override { return config_.dim; }
  void set_soft_mask(double share) override { config_.soft_mask = share; }
  bool is_masked() const override { return config_.mask != "none"; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width) + 1;
    int64_t total = patch_embed_->macs(height, width) + (head_ ? head_->macs() : 0);
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total;
  }

  std::vector<std::string> no_weight_decay() const override { return {"pos_embed", "cls_token"}; }

  // The class token's own position is the last entry of the table, or the first.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined() || stored.dim() != 3) return {};
    const torch::Tensor front = last() ? stored.roll(1, 1) : stored;
    const torch::Tensor moved =
        nn::fit_square_tokens(front, 1, rows_, columns_, config_.dim, nn::Resample::bicubic_antialias);
    return moved.defined() && last() ? moved.roll(-1, 1) : moved;
  }

 protected:
  Tokens start(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = patch_embed_(images);
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    const torch::Tensor flat = patches.reshape({batch, rows * columns, config_.dim});
    const torch::Tensor token = cls_token_.expand({batch, -1, -1});
    torch::Tensor x = last() ? torch::cat({flat, token}, 1) : torch::cat({token, flat}, 1);
    if (pos_embed_.defined()) x = x + positions_for(rows, columns);
    Tokens tokens{
        .x = x, .rows = rows, .columns = columns, .before = last() ? 0 : 1, .behind = last() ? 1 : 0};
    const int64_t count = x.size(1);
    if (config_.ropes())
      tokens.extras.rotation =
          nn::rotation_1d(torch::arange(count, torch::TensorOptions().dtype(torch::kFloat64)),
                          config_.dim / config_.heads, config_.rope_theta);
    mask(tokens.extras, count, x);
    return tokens;
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens.extras, context);
  }

  torch::Tensor read(const torch::Tensor& x, const Tokens&, const Context&) override {
    return norm_(x.select(1, last() ? -1 : 0));
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "patch_embed.proj.weight")
      fill.fan_in_uniform(parameter[0].numel());
    else if (name == "patch_embed.proj.bias")
      fill.fan_in_uniform(3 * config_.patch_size * config_.patch_size);
    else if (name == "pos_embed" || name == "cls_token" || parameter.dim() == 2)
      fill.truncated_normal(0.02);
  }

 private:
  bool last() const { return config_.class_token == "last"; }

  torch::Tensor positions_for(int64_t rows, int64_t columns) const {
    if (rows == rows_ && columns == columns_) return pos_embed_;
    const torch::Tensor front = last() ? pos_embed_.roll(1, 1) : pos_embed_;
    const torch::Tensor moved =
        nn::resample_tokens(front, 1, rows_, columns_, rows, columns, nn::Resample::bicubic_antialias);
    return last() ? moved.roll(-1, 1) : moved;
  }

  void mask(nn::AttentionExtras& extras, int64_t count, const torch::Tensor& like) const {
    if (config_.mask == "none") return;
    // In evaluation the mask is the causal one; a soft share belongs to training.
    const double soft = is_training() ? config_.soft_mask : 0;
    if (config_.mask == "after") {
      extras.later = soft;
    } else if (config_.mask == "before" && soft == 0) {
      extras.causal = true;
    } else {
      const auto options =
          like.options().dtype(like.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
      torch::Tensor seen = torch::ones({count, count}, options).tril();
      if (config_.mask == "modified") seen.select(0, last() ? count - 1 : 0).fill_(1);
      extras.bias =
          torch::log(soft + (1 - soft) * seen);  // 0 where seen, log of the soft share (or -inf) elsewhere
    }
  }

  Config config_;
  int64_t rows_ = 0, columns_ = 0;
  torch::Tensor cls_token_, pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  std::vector<std::shared_ptr<AttentionBlock>> blocks_;
  Norm norm_;
};

Value size(int64_t dim, int64_t depth, int64_t heads, int64_t image = 224) {
  return table({{"dim", dim}, {"depth", depth}, {"heads", heads}, {"image_size", image}});
}

}  // namespace

Family illama_family() {
  return make_family<ImageLlama, Config>(
      "illama", "iLLaMA: a causal LLaMA block on patches",
      {
          {"illama_tiny_patch16_224", {"illama_tiny"}, size(192, 12, 3)},
          {"illama_small_patch16_224", {"illama_small"}, size(384, 12, 6)},
          {"illama_base_patch16_224", {"illama_base"}, size(768, 12, 12)},
          {"illama_large_patch16_224", {"illama_large"}, size(1024, 24, 16)},
          {"illama_base_patch16_384",
           {"illama_base (384)"},
           size(768, 12, 12, 384),
           table({{"crop", 1.0}, {"crop_mode", "squash"}})},  // as its code does from 384 on
      });
}

}  // namespace tessera::models
