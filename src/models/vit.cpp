// Vision Transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words"), with what DeiT (Touvron et
// al. 2021) and DeiT III (2022) add. Names of parameters and sizes are timm's.
//
//   x_0 = [class token; patches W] + positions
//   y   = x + gamma_1 * attention(norm(x))          x' = y + gamma_2 * mlp(norm(y))
//   scores = head(norm(x_L)[class token])           or head(norm(mean of the patches' tokens))
#include <cmath>

#include "core/error.h"
#include "models/family.h"
#include "nn/attention.h"
#include "nn/checkpoint.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"

namespace tessera::models {
namespace {

struct Config {
  Value image_size = 224;
  int64_t patch_size = 16, classes = 1000, dim = 192, depth = 12, heads = 3;
  double mlp_ratio = 4;
  bool qkv_bias = true, qk_norm = false;
  double init_values = 0;
  std::string global_pool = "token", fc_norm = "auto";
  bool class_token = true, no_embed_class = false;
  int64_t reg_tokens = 0;
  bool pre_norm = false;
  std::string positions = "learned";
  double drop_path = 0;
  bool drop_path_decay = true;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch in pixels");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dim", dim, "width of a token");
    v("depth", depth, "blocks");
    v("heads", heads, "attention heads");
    v("mlp_ratio", mlp_ratio, "hidden width of the MLP as a multiple of dim");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("qk_norm", qk_norm, "normalise q and k in each head");
    v("init_values", init_values, "first value of LayerScale, 0 = no LayerScale");
    v("global_pool", global_pool,
      "what the head reads: token (the class token) or avg (mean of the patches)");
    v("fc_norm", fc_norm, "norm after the mean instead of before: auto (with avg), on, off");
    v("class_token", class_token, "a learned token in front of the patches");
    v("no_embed_class", no_embed_class, "no position for class and register tokens (DeiT III)");
    v("reg_tokens", reg_tokens, "register tokens (Darcet et al. 2024)");
    v("pre_norm", pre_norm, "a norm before the first block, no bias in the patch embedding (CLIP)");
    v("positions", positions, "learned, sincos (fixed) or none");
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first block to drop_path at the last, else the same for all");
  }

  void check() const {
    const Extent image = extent_of(image_size, "image_size");
    if (patch_size < 1 || image.height % patch_size != 0 || image.width % patch_size != 0)
      fail_usage("model.image_size ", image.height, " x ", image.width,
                 " must be a multiple of model.patch_size ", patch_size);
    if (dim < 1 || depth < 1 || heads < 1 || dim % heads != 0)
      fail_usage("model.dim ", dim, " must be a positive multiple of model.heads ", heads,
                 ", and model.depth positive");
    if (classes < 0 || reg_tokens < 0 || mlp_ratio <= 0)
      fail_usage("model.classes and reg_tokens must not be negative");
    if (global_pool != "token" && global_pool != "avg")
      fail_usage("model.global_pool is '", global_pool, "', must be token or avg");
    if (global_pool == "token" && !class_token)
      fail_usage("model.global_pool = \"token\" needs class_token = true");
    if (fc_norm != "auto" && fc_norm != "on" && fc_norm != "off")
      fail_usage("model.fc_norm is '", fc_norm, "', must be auto, on or off");
    if (positions != "learned" && positions != "sincos" && positions != "none")
      fail_usage("model.positions is '", positions, "', must be learned, sincos or none");
    if (positions == "sincos" && dim % 4 != 0)
      fail_usage("model.positions = \"sincos\" needs dim to be a multiple of 4");
    if (drop_path < 0 || drop_path >= 1) fail_usage("model.drop_path is ", drop_path, ", must be in [0, 1)");
  }
};

class Block : public torch::nn::Module {
 public:
  Block(const Config& config, int64_t index, double drop_path)
      : index_(index), drop_path_(drop_path), name_("blocks." + std::to_string(index)) {
    norm1_ = register_module("norm1", nn::LayerNorm(config.dim));
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads, config.qkv_bias, config.qk_norm));
    if (config.init_values > 0) ls1_ = register_module("ls1", nn::LayerScale(config.dim, config.init_values));
    norm2_ = register_module("norm2", nn::LayerNorm(config.dim));
    const auto hidden = static_cast<int64_t>(static_cast<double>(config.dim) * config.mlp_ratio);
    mlp_ = register_module("mlp", nn::Mlp(config.dim, hidden));
    if (config.init_values > 0) ls2_ = register_module("ls2", nn::LayerScale(config.dim, config.init_values));
  }

  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const torch::Tensor y =
        nn::residual(x, drop_path_, is_training(), 2 * index_, context, [&](const torch::Tensor& kept) {
          const torch::Tensor mixed = attn_(norm1_(kept), context.taps, name_);
          return ls1_ ? ls1_(mixed) : mixed;
        });
    return nn::residual(y, drop_path_, is_training(), 2 * index_ + 1, context,
                        [&](const torch::Tensor& kept) {
                          const torch::Tensor changed = mlp_(norm2_(kept));
                          return ls2_ ? ls2_(changed) : changed;
                        });
  }

  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_->macs(); }

 private:
  int64_t index_;
  double drop_path_;
  std::string name_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Attention attn_{nullptr};
  nn::Mlp mlp_{nullptr};
  nn::LayerScale ls1_{nullptr}, ls2_{nullptr};
};

class Vit final : public Backbone {
 public:
  explicit Vit(const Config& config) : config_(config) {
    const Extent image = extent_of(config.image_size, "image_size");
    rows_ = image.height / config.patch_size;
    columns_ = image.width / config.patch_size;
    prefix_ = (config.class_token ? 1 : 0) + config.reg_tokens;
    if (config.class_token) cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    if (config.reg_tokens > 0)
      reg_token_ = register_parameter("reg_token", nn::zeros({1, config.reg_tokens, config.dim}));
    const int64_t entries = rows_ * columns_ + position_prefix();
    if (config.positions == "learned")
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, entries, config.dim}));
    if (config.positions == "sincos") pos_embed_ = register_buffer("pos_embed", fixed_positions());
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.patch_size, !config.pre_norm));
    if (config.pre_norm) norm_pre_ = register_module("norm_pre", nn::LayerNorm(config.dim));
    const auto list = register_module("blocks", torch::nn::ModuleList());
    const std::vector<double> rates =
        nn::drop_path_rates(config.drop_path, config.depth, config.drop_path_decay);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<Block>(config, i, rates[static_cast<size_t>(i)]));
      list->push_back(blocks_.back());
    }
    const bool norm_last =
        config.fc_norm == "on" || (config.fc_norm == "auto" && config.global_pool == "avg");
    (norm_last ? fc_norm_ : norm_) =
        register_module(norm_last ? "fc_norm" : "norm", nn::LayerNorm(config.dim));
    make_head(config.classes);
  }

  torch::Tensor forward(const torch::Tensor& images, const Context& context) override {
    const torch::Tensor read = embed(images, context);
    return head_ ? head_(read) : read;
  }

  torch::Tensor embed(const torch::Tensor& images, const Context& context) override {
    torch::Tensor x = embed_tokens(images);
    for (size_t i = 0; i < blocks_.size(); ++i) x = run_block(i, x, context);
    if (norm_) x = norm_(x);
    tap(context.taps, "tokens", x);
    x = config_.global_pool == "token" ? x.select(1, 0) : x.slice(1, prefix_).mean(1);
    if (fc_norm_) x = fc_norm_(x);
    return tap(context.taps, "embed", x);
  }

  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                      const Context& context) override {
    const int64_t rows = images.size(2) / config_.patch_size, columns = images.size(3) / config_.patch_size;
    std::map<int64_t, torch::Tensor> maps;
    torch::Tensor x = embed_tokens(images);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      x = run_block(i, x, context);
      maps[static_cast<int64_t>(i)] = x;
    }
    std::vector<torch::Tensor> chosen;
    for (const int64_t block : blocks) {
      check(maps.contains(block), "features: there is no block ", block, ", the model has ", blocks_.size());
      chosen.push_back(maps[block]
                           .slice(1, prefix_)
                           .transpose(1, 2)
                           .reshape({images.size(0), config_.dim, rows, columns}));
    }
    return chosen;
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t block_count() const override { return config_.depth; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = (height / config_.patch_size) * (width / config_.patch_size) + prefix_;
    int64_t total = patch_embed_->macs(height, width) + (head_ ? head_->macs() : 0);
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total;
  }

  void reset_head(int64_t classes) override {
    if (head_) unregister_module("head");
    head_ = nullptr;
    make_head(classes);
    if (head_)
      nn::initialise(*this, seed_, [&](const auto& name, const auto& parameter, const nn::Filler& fill) {
        if (name.starts_with("head.")) first_values(name, parameter, fill);
      });
  }

  std::vector<std::string> no_weight_decay() const override {
    return {"pos_embed", "cls_token", "dist_token"};
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined()) return {};
    const int64_t width = config_.dim;
    if (stored.dim() == 4 && stored.size(3) == width) {  // [1, rows, columns, width], no prefix
      const torch::Tensor grid =
          nn::resample_grid(stored[0], rows_, columns_, nn::Resample::bicubic_antialias);
      const torch::Tensor moved = grid.reshape({1, rows_ * columns_, width});
      return moved.sizes() == pos_embed_.sizes() ? moved : torch::Tensor();
    }
    if (stored.dim() != 3 || stored.size(2) != width) return {};
    const auto side =
        static_cast<int64_t>(std::sqrt(static_cast<double>(stored.size(1) - position_prefix())) + 0.5);
    if (side < 1 || side * side + position_prefix() != stored.size(1)) return {};  // of a square image only
    return nn::resample_tokens(stored, position_prefix(), side, side, rows_, columns_,
                               nn::Resample::bicubic_antialias);
  }

  void initialise(uint64_t seed) override {
    seed_ = seed;
    nn::initialise(*this, seed, first_values);
  }

 private:
  // timm's: truncated normal for linear layers and positions, PyTorch's own for the patch embedding.
  static void first_values(const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (name == "pos_embed")
      fill.truncated_normal(0.02);
    else if (name == "cls_token" || name == "reg_token")
      fill.normal(1e-6);
    else if (name.starts_with("patch_embed.proj.")) {
      if (parameter.dim() == 4) fill.fan_in_uniform(parameter[0].numel());
    } else if (parameter.dim() == 2)
      fill.truncated_normal(0.02);
  }

  void make_head(int64_t classes) {
    config_.classes = classes;
    if (classes > 0) head_ = register_module("head", nn::Linear(config_.dim, classes));
  }

  int64_t position_prefix() const { return config_.no_embed_class ? 0 : prefix_; }

  // The fixed table, with zeros for the tokens in front.
  torch::Tensor fixed_positions() const {
    if (nn::ShapesOnly::active()) return nn::zeros({1, rows_ * columns_ + position_prefix(), config_.dim});
    const torch::Tensor table = nn::sincos_2d(rows_, columns_, config_.dim);
    return torch::cat({torch::zeros({position_prefix(), config_.dim}), table}).unsqueeze(0);
  }

  // [batch, 3, height, width] -> [batch, prefix + rows * columns, dim] with positions.
  torch::Tensor embed_tokens(const torch::Tensor& images) {
    const torch::Tensor patches = patch_embed_(images);
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    torch::Tensor x = patches.reshape({batch, rows * columns, config_.dim});
    torch::Tensor positions;
    if (pos_embed_.defined())
      positions = nn::resample_tokens(pos_embed_, position_prefix(), rows_, columns_, rows, columns,
                                      nn::Resample::bicubic_antialias);
    if (positions.defined() && config_.no_embed_class) x = x + positions;
    std::vector<torch::Tensor> parts;
    if (cls_token_.defined()) parts.push_back(cls_token_.expand({batch, -1, -1}));
    if (reg_token_.defined()) parts.push_back(reg_token_.expand({batch, -1, -1}));
    if (!parts.empty()) {
      parts.push_back(x);
      x = torch::cat(parts, 1);
    }
    if (positions.defined() && !config_.no_embed_class) x = x + positions;
    return norm_pre_ ? norm_pre_(x) : x;
  }

  torch::Tensor run_block(size_t index, const torch::Tensor& x, const Context& context) {
    const auto block = blocks_[index];
    torch::Tensor y;
    if (checkpointing && is_training() && !context.taps)
      y = nn::checkpoint([block, context](const torch::Tensor& in) { return block->forward(in, context); }, x,
                         block->parameters());
    else
      y = block->forward(x, context);
    return tap(context.taps, "blocks." + std::to_string(index), y);
  }

  Config config_;
  uint64_t seed_ = 0;
  int64_t rows_ = 0, columns_ = 0, prefix_ = 0;
  torch::Tensor cls_token_, reg_token_, pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  nn::LayerNorm norm_pre_{nullptr}, norm_{nullptr}, fc_norm_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::Linear head_{nullptr};
};

// torchvision's names, and those of the DeiT-III re-implementation of the Vision-LSTM authors, to timm's.
std::string rename(const std::string& published) {
  static const std::vector<std::pair<std::string, std::string>> whole = {
      {"class_token", "cls_token"},
      {"encoder.pos_embedding", "pos_embed"},
      {"encoder.ln.weight", "norm.weight"},
      {"encoder.ln.bias", "norm.bias"},
      {"heads.head.weight", "head.weight"},
      {"heads.head.bias", "head.bias"},
      {"conv_proj.weight", "patch_embed.proj.weight"},
      {"conv_proj.bias", "patch_embed.proj.bias"},
      {"cls_tokens.tokens", "cls_token"},
      {"pos_embed.embed", "pos_embed"},
      {"head.0.weight", "norm.weight"},
      {"head.0.bias", "norm.bias"},
      {"head.1.weight", "head.weight"},
      {"head.1.bias", "head.bias"},
  };
  for (const auto& [theirs, ours] : whole)
    if (published == theirs) return ours;
  static const std::string block = "encoder.layers.encoder_layer_";
  if (!published.starts_with(block)) return published;
  const size_t dot = published.find('.', block.size());
  if (dot == std::string::npos) return published;
  static const std::vector<std::pair<std::string, std::string>> inside = {
      {"ln_1.", "norm1."},
      {"ln_2.", "norm2."},
      {"mlp.0.", "mlp.fc1."},
      {"mlp.linear_1.", "mlp.fc1."},
      {"mlp.3.", "mlp.fc2."},
      {"mlp.linear_2.", "mlp.fc2."},
      {"self_attention.in_proj_", "attn.qkv."},
      {"self_attention.out_proj.", "attn.proj."},
  };
  const std::string rest = published.substr(dot + 1);
  for (const auto& [theirs, ours] : inside)
    if (rest.starts_with(theirs))
      return "blocks." + published.substr(block.size(), dot - block.size()) + "." + ours +
             rest.substr(theirs.size());
  return published;
}

Value size(int64_t patch, int64_t dim, int64_t depth, int64_t heads, Value extra = {}) {
  Value settings = table({{"patch_size", patch}, {"dim", dim}, {"depth", depth}, {"heads", heads}});
  merge(settings, extra);
  return settings;
}

// LayerScale from 1e-6, no position for the class token.
Value deit3(int64_t patch, int64_t dim, int64_t depth, int64_t heads) {
  return size(patch, dim, depth, heads,
              table({{"no_embed_class", true}, {"init_values", 1e-6}, {"drop_path_decay", false}}));
}

}  // namespace

Family vit_family() {
  return make_family<Vit, Config>(
      "vit", "Vision Transformer, DeiT, DeiT III",
      {
          {"vit_tiny_patch16_224", {}, size(16, 192, 12, 3)},
          {"vit_small_patch16_224", {}, size(16, 384, 12, 6)},
          {"vit_base_patch16_224", {}, size(16, 768, 12, 12)},
          {"vit_base_patch32_224", {}, size(32, 768, 12, 12)},
          {"vit_large_patch16_224", {}, size(16, 1024, 24, 16)},
          {"vit_huge_patch14_224", {}, size(14, 1280, 32, 16, table({{"classes", 0}}))},
          {"deit_tiny_patch16_224", {}, size(16, 192, 12, 3)},
          {"deit_small_patch16_224", {}, size(16, 384, 12, 6)},
          {"deit_base_patch16_224", {}, size(16, 768, 12, 12)},
          {"deit_base_patch16_384", {}, size(16, 768, 12, 12, table({{"image_size", 384}}))},
          {"deit3_tiny_patch16_224",  // of the Vision-LSTM authors: fixed positions, LayerScale from 1e-4
           {"deit3-tiny", "deit3-tiny-e400"},
           size(16, 192, 12, 3,
                table({{"positions", "sincos"}, {"no_embed_class", true}, {"init_values", 1e-4}}))},
          {"deit3_small_patch16_224", {}, deit3(16, 384, 12, 6)},
          {"deit3_medium_patch16_224", {}, deit3(16, 512, 12, 8)},
          {"deit3_base_patch16_224", {}, deit3(16, 768, 12, 12)},
          {"deit3_large_patch16_224", {}, deit3(16, 1024, 24, 16)},
          {"deit3_huge_patch14_224", {}, deit3(14, 1280, 32, 16)},
      },
      rename);
}

}  // namespace tessera::models
