// Vision Transformer (Dosovitskiy et al. 2021, "An image is worth 16x16 words"), with the additions of DeiT
// (Touvron et al. 2021), DeiT III (2022), CPVT (Chu et al. 2021, conditional positions) and BEiT (Bao et al.
// 2022, relative positions). Names of parameters and sizes (vit_sizes.cpp) are timm's; the table of relative
// positions has BEiT's name.
//
//   x_0 = [class token; patches W] + positions
//   y   = x + gamma_1 * attention(norm(x))          x' = y + gamma_2 * mlp(norm(y))
//   scores = head(norm(x_L)[class token])           or head(norm(mean or maximum of the patches' tokens))
//                                                   or head(attention pooling of the patches of norm(x_L))
#include <cmath>

#include "core/error.h"
#include "models/backbones/vit_config.h"
#include "models/base/capability.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/patch_mask.h"
#include "nn/attention.h"
#include "nn/attention_pool.h"
#include "nn/conv_stem.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/relative_position.h"

namespace tessera::models::vit {
namespace {

constexpr const char* kBiasTable = "relative_position_bias_table";

class Block : public torch::nn::Module {
 public:
  Block(const VitConfig& config, int64_t index, double drop_path)
      : index_(index), drop_path_(drop_path), name_("blocks." + std::to_string(index)) {
    norm1_ = register_norm(*this, "norm1", config.norm, config.dim, config.norm_eps);
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads, config.qkv_bias, config.qk_norm,
                                                  config.proj_bias, config.head_dim));
    if (config.init_values > 0) ls1_ = register_module("ls1", nn::LayerScale(config.dim, config.init_values));
    norm2_ = register_norm(*this, "norm2", config.norm, config.dim, config.norm_eps);
    mlp_ = register_module("mlp", nn::AnyMlp(config.mlp, config.dim, config.hidden(), config.proj_bias));
    if (config.init_values > 0) ls2_ = register_module("ls2", nn::LayerScale(config.dim, config.init_values));
    if (config.positions == VitPositions::relative)
      relative_ = register_module("relative_positions", nn::GridBias(config.heads));
    if (config.relative_table) {
      built_ = config.grid();
      class_token_ = config.class_token;
      table_ = attn_->register_parameter(
          kBiasTable,
          nn::zeros({nn::offset_bias_rows(built_.height, built_.width, class_token_), config.heads}));
    }
  }

  // Runs the block on x [batch, tokens, dim], with the positions and biases of `tokens`.
  torch::Tensor forward(const torch::Tensor& x, const Tokens& tokens, const Context& context) {
    const nn::AttentionExtras extras{.bias = bias(tokens), .taps = context.taps, .name = name_};
    const auto add = [&](const torch::Tensor& to, const nn::LayerScale& scale, int64_t layer,
                         const auto& branch) {
      return nn::residual(to, scale ? scale->gamma : torch::Tensor(), drop_path_, is_training(), layer,
                          context, branch);
    };
    const torch::Tensor y =
        add(x, ls1_, 2 * index_,
            [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
              return attn_->forward(norm1_.before_linear(kept), nn::of_samples(extras, samples), epilogue);
            });
    return add(y, ls2_, 2 * index_ + 1, [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
      return mlp_->forward(norm2_.before_linear(kept), epilogue);
    });
  }

  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_->macs(); }

 private:
  // Returns the bias of the scores: the block's own plus the one shared by all blocks.
  torch::Tensor bias(const Tokens& tokens) {
    if (!relative_ && !table_.defined()) return tokens.extras.bias;
    torch::Tensor own =
        relative_ ? relative_(tokens.before, tokens.rows, tokens.columns) : of_offsets(tokens);
    if (tokens.kept.defined()) own = bias_at_places(own, tokens.on_the_grid());
    return tokens.extras.bias.defined() ? own + tokens.extras.bias : own;
  }

  torch::Tensor of_offsets(const Tokens& tokens) const {
    const torch::Tensor table = nn::resample_offset_bias(table_, built_.height, built_.width, tokens.rows,
                                                         tokens.columns, class_token_);
    return nn::offset_bias(table, tokens.rows, tokens.columns, class_token_);
  }

  int64_t index_;
  double drop_path_;
  std::string name_;
  Norm norm1_, norm2_;
  nn::Attention attn_{nullptr};
  nn::AnyMlp mlp_{nullptr};
  nn::LayerScale ls1_{nullptr}, ls2_{nullptr};
  nn::GridBias relative_{nullptr};
  torch::Tensor table_;  // relative_table, for the grid that the model was built for
  Extent built_;
  bool class_token_ = false;
};

class Vit final : public IsotropicBackbone, public NeutralParameters, public MasksPatches {
 public:
  explicit Vit(const VitConfig& config) : config_(config) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    prefix_ = (config.class_token ? 1 : 0) + (config.distilled ? 1 : 0) + config.reg_tokens;
    if (config.class_token) cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    if (config.reg_tokens > 0)
      reg_token_ = register_parameter("reg_token", nn::zeros({1, config.reg_tokens, config.dim}));
    const int64_t entries = rows_ * columns_ + position_prefix();
    if (config.positions == VitPositions::learned)
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, entries, config.dim}));
    if (config.fixed_table()) pos_embed_ = register_buffer("pos_embed", fixed_positions());
    if (config.distilled) dist_token_ = register_parameter("dist_token", nn::zeros({1, 1, config.dim}));
    if (config.conv_stem)
      conv_stem_ = register_module("patch_embed", nn::ConvStem(config.dim, config.in_channels));
    else
      patch_embed_ = register_module(
          "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.patch_size,
                                        config.patch_bias && !config.pre_norm, config.in_channels));
    if (config.pre_norm)
      norm_pre_ = register_norm(*this, "norm_pre", config.norm, config.dim, config.norm_eps);
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<Block>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    const auto last_norm = [&](const char* name) {
      return register_norm(*this, name, config.norm, config.dim, config.norm_eps);
    };
    if (config.final_norm && !config.norm_after_pooling()) norm_ = last_norm("norm");
    if (config.global_pool == VitPool::map)
      attn_pool_ = register_module(
          "attn_pool", nn::AttentionPool(nn::AttentionPoolOptions{.width = config.dim,
                                                                  .heads = config.heads,
                                                                  .hidden = config.hidden(),
                                                                  .mlp = config.mlp,
                                                                  .rms = config.norm == NormKind::rms,
                                                                  .norm_eps = config.norm_eps}));
    if (config.final_norm && config.norm_after_pooling()) fc_norm_ = last_norm("fc_norm");
    if (config.shared_table)
      shared_table_ =
          register_module("rel_pos_bias", std::make_shared<torch::nn::Module>())
              ->register_parameter(
                  kBiasTable,
                  nn::zeros({nn::offset_bias_rows(rows_, columns_, config.class_token), config.heads}));
    if (config.peg) peg_ = register_module("peg", nn::ConditionalPositions(config.dim));
  }

  // Returns the class token, and the distillation token for the head that learns from the teacher.
  std::vector<torch::Tensor> read_outs(const torch::Tensor& images, const Context& context) override {
    if (!config_.distilled) return Backbone::read_outs(images, context);
    const Tokens tokens = tokenise(images, context);
    const torch::Tensor last = run(tokens, context), x = norm_(last);
    if (context.taps) tap(context.taps, "embed", read(last, tokens, context));
    return {x.select(1, 0), x.select(1, 1)};
  }
  std::vector<std::string> head_names() const override {
    return config_.distilled ? std::vector<std::string>{"head", "head_dist"} : Backbone::head_names();
  }

  int64_t embed_width() const override { return config_.read_width(); }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width) + prefix_;
    int64_t total = conv_stem_ ? conv_stem_->macs(height, width) : patch_embed_->macs(height, width);
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total + (attn_pool_ ? attn_pool_->macs(tokens - prefix_) : 0) +
           (peg_ ? config_.patches(height, width) * peg_->macs() : 0);
  }

  std::string keep_refusal() const override {
    return peg_ ? "model.peg = true reads the neighbours of every patch" : "";
  }

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names{"pos_embed", "cls_token", "dist_token", "reg_token"};
    for (const auto& entry : named_parameters())
      if (entry.key().find(".relative_positions.") != std::string::npos) names.push_back(entry.key());
    for (const std::string& table : neutral_names()) names.push_back(table);
    return names;
  }

  // Tables of relative positions start at 0, so a ViT without them can be fine-tuned with them (Alkin et al.
  // 2024, section B.5).
  std::vector<std::string> neutral_names() const override {
    std::vector<std::string> names;
    for (const auto& entry : named_parameters())
      if (nn::ends_with(entry.key(), kBiasTable)) names.push_back(entry.key());
    return names;
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (nn::ends_with(name, kBiasTable))
      return nn::fit_offset_bias(stored, rows_, columns_, config_.heads, config_.class_token);
    if (name != "pos_embed" || !pos_embed_.defined()) return {};
    const int64_t width = config_.dim;
    if (stored.dim() == 4 && stored.size(3) == width) {  // [1, rows, columns, width], no prefix
      const torch::Tensor grid =
          nn::resample_grid(stored[0], rows_, columns_, nn::Resample::bicubic_antialias);
      const torch::Tensor moved = grid.reshape({1, rows_ * columns_, width});
      return moved.sizes() == pos_embed_.sizes() ? moved : torch::Tensor();
    }
    return nn::fit_square_tokens(stored, position_prefix(), rows_, columns_, width,
                                 nn::Resample::bicubic_antialias);
  }

  // Initialises as timm: truncated normal for linear layers and positions, PyTorch's default for the patch
  // embedding.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "pos_embed" || name == "dist_token")
      fill.truncated_normal(0.02);
    else if (name == "cls_token" || name == "reg_token")
      fill.normal(1e-6);
    else if (name.starts_with("patch_embed.") && parameter.dim() == 4)
      fill.fan_in_uniform(parameter[0].numel());
    else if (name == "attn_pool.latent")
      fill.truncated_normal(1 / std::sqrt(static_cast<double>(config_.dim)));
    else if (name.starts_with("peg.proj."))
      fill.fan_in_uniform(9);
    else if (parameter.dim() == 2 && !nn::ends_with(name, kBiasTable))
      fill.truncated_normal(0.02);
  }

  torch::Tensor whole_patches(const torch::Tensor& images) const {
    const int64_t patch = config_.patch_size;
    return images.slice(2, 0, images.size(2) / patch * patch).slice(3, 0, images.size(3) / patch * patch);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = with_mask_tokens(
        conv_stem_ ? conv_stem_(images) : patch_embed_(config_.drop_border ? whole_patches(images) : images));
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    torch::Tensor x = patches.reshape({batch, rows * columns, config_.dim});
    torch::Tensor positions;
    if (pos_embed_.defined()) positions = positions_for(rows, columns);
    if (positions.defined() && config_.no_embed_class) x = x + positions;
    const bool without_place = reg_token_.defined() && !config_.reg_positions;
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& token : {cls_token_, dist_token_, without_place ? torch::Tensor() : reg_token_})
      if (token.defined()) parts.push_back(token.expand({batch, -1, -1}));
    if (!parts.empty()) {
      parts.push_back(x);
      x = torch::cat(parts, 1);
    }
    if (positions.defined() && !config_.no_embed_class) x = x + positions;
    if (without_place) {
      const int64_t before = prefix_ - config_.reg_tokens;
      x = torch::cat({x.slice(1, 0, before), reg_token_.expand({batch, -1, -1}), x.slice(1, before)}, 1);
    }
    Tokens tokens;
    tokens.x = norm_pre_ ? norm_pre_(x) : x;
    tokens.rows = rows, tokens.columns = columns, tokens.before = prefix_;
    if (shared_table_.defined())
      tokens.extras.bias = nn::offset_bias(
          nn::resample_offset_bias(shared_table_, rows_, columns_, rows, columns, config_.class_token), rows,
          columns, config_.class_token);
    if (config_.positions == VitPositions::alibi)
      tokens.extras.bias = nn::alibi_bias_2d(config_.heads, prefix_, rows, columns).to(x.options());
    return tokens;
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens, context);
  }

  torch::Tensor after_block(int64_t index, const torch::Tensor& x, const Tokens& tokens) override {
    if (!peg_ || index > 0) return x;
    return torch::cat({x.slice(1, 0, prefix_), peg_(x.slice(1, prefix_), tokens.rows, tokens.columns)}, 1);
  }

  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_ ? norm_(last) : last; }

  torch::Tensor read(const torch::Tensor& last, const TokenPlaces&, const Context& context) override {
    const torch::Tensor x = norm_tokens(last);
    tap(context.taps, "tokens", x);
    const torch::Tensor pooled = config_.distilled ? (x.select(1, 0) + x.select(1, 1)) / 2 : pooled_tokens(x);
    return fc_norm_ ? fc_norm_(pooled) : pooled;
  }

 private:
  torch::Tensor pooled_tokens(const torch::Tensor& x) {
    const torch::Tensor patches = x.slice(1, prefix_);
    switch (config_.global_pool) {
      case VitPool::avg:
        return patches.mean(1);
      case VitPool::max:
        return patches.amax(1);
      case VitPool::avgmax:
        return (patches.mean(1) + patches.amax(1)) / 2;
      case VitPool::map:
        return attn_pool_(patches);
      case VitPool::token_avg:
        return torch::cat({x.select(1, 0), patches.mean(1)}, 1);
      case VitPool::token:
        break;
    }
    return x.select(1, 0);
  }

  // Returns the learned positions for another grid. DINO's places are (i + 0.5) old / (new + 0.1) - 0.5.
  torch::Tensor positions_for(int64_t rows, int64_t columns) const {
    const int64_t prefix = position_prefix();
    if (config_.resample == VitResample::antialias || (rows == rows_ && columns == columns_))
      return nn::resample_tokens(pos_embed_, prefix, rows_, columns_, rows, columns,
                                 nn::Resample::bicubic_antialias);
    const double more = config_.resample == VitResample::offset ? 0.1 : 0;
    const auto scale = [&](int64_t now, int64_t old) {
      return (static_cast<double>(now) + more) / static_cast<double>(old);
    };
    const torch::Tensor planes =
        pos_embed_.slice(1, prefix).unflatten(1, {rows_, columns_}).permute({0, 3, 1, 2});
    const torch::Tensor moved =
        at::upsample_bicubic2d(planes, {rows, columns}, false, scale(rows, rows_), scale(columns, columns_));
    return torch::cat({pos_embed_.slice(1, 0, prefix), moved.flatten(2).transpose(1, 2)}, 1);
  }

  // Returns the number of tokens with a position before the patches.
  int64_t position_prefix() const {
    return config_.no_embed_class ? 0 : prefix_ - (config_.reg_positions ? 0 : config_.reg_tokens);
  }

  // Returns the fixed table, with zeros for the tokens before the patches.
  torch::Tensor fixed_positions() const {
    if (nn::ShapesOnly::active()) return nn::zeros({1, rows_ * columns_ + position_prefix(), config_.dim});
    // MoCo v3 encodes index / rows first, then index % rows, of a patch's row-major index.
    const torch::Tensor table = config_.positions == VitPositions::sincos
                                    ? nn::sincos_2d(rows_, columns_, config_.dim)
                                    : nn::sincos_2d(columns_, rows_, config_.dim).roll(config_.dim / 2, 1);
    return torch::cat({torch::zeros({position_prefix(), config_.dim}), table}).unsqueeze(0);
  }

  VitConfig config_;
  int64_t rows_ = 0, columns_ = 0, prefix_ = 0;
  torch::Tensor cls_token_, dist_token_, reg_token_, pos_embed_;
  torch::Tensor shared_table_;  // as Block::table_, of all blocks
  nn::PatchEmbed patch_embed_{nullptr};
  nn::ConvStem conv_stem_{nullptr};  // in its place
  Norm norm_pre_, norm_, fc_norm_;
  nn::AttentionPool attn_pool_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::ConditionalPositions peg_{nullptr};
};

}  // namespace

Family family() { return make_family<Vit, VitConfig>("vit", "Vision Transformer, DeiT, DeiT III", sizes()); }

}  // namespace tessera::models::vit
