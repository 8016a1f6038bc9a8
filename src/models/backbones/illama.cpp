// iLLaMA (Wang et al. 2024, "Adapting LLaMA decoder to vision transformer"): a LLaMA block on image patches,
// causal, with the class token after the patches. Parameters have the names of the published code.
//
//   x_0 = [patches W; class token] + positions
//   y   = x + A(rms(x))       A = (softmax(R q (R k)^T / sqrt(d)) * S) v, R: 1-D RoPE
//   x'  = y + fc2(silu(fc1 rms(y)) * fc3 rms(y))
//   scores = head(rms(x_L)[last token])
// S is the lower triangle, or softly alpha + (1 - alpha) * lower triangle early in training. The published
// code applies it after the softmax; mask = "before" is the paper's Softmax(A + M).
#include "models/backbones/baselines.h"

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/causal_backbone.h"
#include "models/base/family.h"
#include "models/base/residual_block.h"
#include "models/base/windows.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "nn/position.h"

namespace tessera::models::illama {
namespace {

enum class Mask { after, before, modified, none };
enum class ClassToken { last, first };
enum class Positions { both, learned, rope, none };

}  // namespace
}  // namespace tessera::models::illama

template <>
struct tessera::EnumNames<tessera::models::illama::Mask> {
  static constexpr std::array names = {"after", "before", "modified", "none"};
};
template <>
struct tessera::EnumNames<tessera::models::illama::ClassToken> {
  static constexpr std::array names = {"last", "first"};
};
template <>
struct tessera::EnumNames<tessera::models::illama::Positions> {
  static constexpr std::array names = {"both", "learned", "rope", "none"};
};

namespace tessera::models::illama {
namespace {

struct Config : IsotropicSettings, WindowSettings {
  NormKind norm = NormKind::rms;
  PlainMlp mlp = PlainMlp::swiglu;
  double mlp_ratio = 4;
  Mask mask = Mask::after;
  double soft_mask = 0;
  RateMode soft_mask_mode = RateMode::standard;
  RateShape soft_mask_shape = RateShape::linear;
  int64_t soft_mask_cutoff = 0;
  ClassToken class_token = ClassToken::last;
  Positions positions = Positions::both;
  double rope_theta = 10000;
  bool qkv_bias = true;
  double init_std = 0.02;

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("norm", norm, choice<NormKind>(), "in the blocks and before the head");
    v("mlp", mlp, choice<PlainMlp>(), "the MLP of a block");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the gelu MLP as a multiple of dim");
    v("mask", mask, choice<Mask>(),
      "causal mask: after the softmax as published, before it (the paper's), modified: the class token sees "
      "all");
    v("soft_mask", soft_mask, between(0, 1), "share of the bi-directional mask in training");
    v("soft_mask_mode", soft_mask_mode, choice<RateMode>(),
      "the share is on until soft_mask_cutoff, throughout, or from then on");
    v("soft_mask_shape", soft_mask_shape, choice<RateShape>(), "mode soft: the share falls to 0, or stays");
    v("soft_mask_cutoff", soft_mask_cutoff, at_least(0), "epoch at which modes soft and late change");
    v("class_token", class_token, choice<ClassToken>(), "after the patches or before them");
    v("positions", positions, choice<Positions>(), "rotary and learned positions");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("init_std", init_std, above(0),
      "deviation of the truncated normal first weights; 0.02 is the published code's, Tables 12 to 15 print "
      "0.2");
    visit_windows(v);
    visit_drop_path(v);
  }

  bool ropes() const { return positions == Positions::rope || positions == Positions::both; }
  bool learns() const { return positions == Positions::learned || positions == Positions::both; }

  ResidualBlockOptions block(int64_t index, double drop) const {
    return {.dim = dim,
            .norm = norm,
            .mlp = kind_of(mlp),
            .hidden = default_hidden(kind_of(mlp), dim, mlp_ratio),
            .names = nn::kImageLlamaNames,
            .drop_path = drop,
            .index = index,
            .name = "blocks." + std::to_string(index)};
  }

  void check() const {
    check_size();
    check_windows(depth);
    if (soft_mask > 0 && mask == Mask::none)
      fail_usage("model.soft_mask = ", shortest(soft_mask), " with model.mask = \"none\": there is no mask");
    if (soft_mask > 0 && soft_mask_mode == RateMode::soft && soft_mask_cutoff == 0)
      fail_usage("model.soft_mask = ", shortest(soft_mask),
                 " ends before it begins with model.soft_mask_cutoff = 0: set the epoch at which it ends");
    if (ropes() && dim / heads % 2 != 0)
      fail_usage("model.dim / model.heads is ", dim / heads, ", RoPE needs it even");
  }
};

class ImageLlama final : public CausalBackbone, public MaskedAttention {
 public:
  explicit ImageLlama(const Config& config)
      : config_(config), soft_(config.soft_mask_mode == RateMode::late ? 0 : config.soft_mask) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    if (config.learns())
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, rows_ * columns_ + 1, config.dim}));
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, 0, true, config.in_channels));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<AttentionBlock>(config.block(i, rates[static_cast<size_t>(i)]),
                                                         config.heads, config.qkv_bias));
      add_block(blocks_.back());
    }
    add_conv_blocks(config, config.dim);
    norm_ = register_norm(*this, "norm", config.norm, config.dim);
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }

  // Sets the share of the bi-directional mask for the next step.
  bool before_step(const TrainingStep& at) override {
    if (config_.soft_mask == 0) return false;
    tessera::check(at.steps_per_epoch > 0, "a step of an epoch of ", at.steps_per_epoch, " steps");
    const int64_t epochs = (at.steps + at.steps_per_epoch - 1) / at.steps_per_epoch;
    if (config_.soft_mask_cutoff > epochs)
      fail_usage("model.soft_mask_cutoff = ", config_.soft_mask_cutoff, " is beyond the run's ", epochs,
                 " epochs");
    const double before = soft_;
    soft_ = rate_at({.rate = config_.soft_mask,
                     .epochs = epochs,
                     .steps_per_epoch = at.steps_per_epoch,
                     .cutoff_epoch = config_.soft_mask_cutoff,
                     .mode = config_.soft_mask_mode,
                     .shape = config_.soft_mask_shape},
                    at.step);
    return soft_ != before;
  }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t rows = height / config_.patch_size, columns = width / config_.patch_size;
    int64_t total = patch_embed_->macs(height, width) + rows * columns * conv_block_macs();
    for (size_t i = 0; i < blocks_.size(); ++i)
      total += blocks_[i]->macs(rows, columns, config_.window_of(static_cast<int64_t>(i)), 1);
    return total;
  }

  // The modified mask lets a class token at the front see the tokens after it.
  int64_t masked_out_macs(int64_t height, int64_t width) const override {
    if (config_.mask == Mask::none) return 0;
    const int64_t tokens = config_.patches(height, width) + 1;
    const int64_t seen = config_.mask == Mask::modified && !last() ? (tokens - 1) * config_.dim : 0;
    int64_t total = 0;
    for (int64_t i = 0; i < config_.depth; ++i) {
      const int64_t side = config_.window_of(i);
      total += side == 0 ? causal_attention_saves(tokens, config_.dim) - seen
                         : window_count(height / config_.patch_size, width / config_.patch_size, side) *
                               causal_attention_saves(side * side, config_.dim);
    }
    return total;
  }

  std::vector<std::string> no_weight_decay() const override { return {"pos_embed", "cls_token"}; }

  // The class token's position is the last entry of the table, or the first.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined() || stored.dim() != 3) return {};
    const torch::Tensor front = last() ? stored.roll(1, 1) : stored;
    const torch::Tensor moved =
        nn::fit_square_tokens(front, 1, rows_, columns_, config_.dim, nn::Resample::bicubic_antialias);
    return moved.defined() && last() ? moved.roll(-1, 1) : moved;
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = patch_embed_(images);
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    const torch::Tensor flat = patches.reshape({batch, rows * columns, config_.dim});
    const torch::Tensor token = cls_token_.expand({batch, -1, -1});
    torch::Tensor x = last() ? torch::cat({flat, token}, 1) : torch::cat({token, flat}, 1);
    if (pos_embed_.defined()) x = x + positions_for(rows, columns);
    Tokens tokens;
    tokens.x = x;
    tokens.rows = rows, tokens.columns = columns;
    (last() ? tokens.behind : tokens.before) = 1;
    const int64_t count = x.size(1);
    if (config_.ropes()) tokens.extras.rotation = rotation(torch::arange(count, torch::kFloat64));
    tokens.extras = masked(tokens.extras, count, last() ? count - 1 : 0, x);
    return tokens;
  }

  // The causal mask follows the new order.
  Tokens keep(const Tokens& tokens, const torch::Tensor& index) const override {
    Tokens chosen = IsotropicBackbone::keep(tokens, index);
    chosen.extras = masked(chosen.extras, chosen.count(), last() ? chosen.count() - 1 : 0, chosen.x);
    return chosen;
  }
  std::string keep_refusal() const override { return window_refusal(); }

  std::string step_refusal() const override {
    if (const std::string why = window_refusal(); !why.empty()) return why;
    switch (config_.mask) {
      case Mask::before:
        return "";
      case Mask::after:
        return "model.mask = \"after\" divides by the weights of all tokens, must be \"before\"";
      default:
        return "model.mask = \"" + name_of(config_.mask) + "\" sees tokens to come, must be \"before\"";
    }
  }

  std::string next_refusal() const override {
    if (config_.soft_mask > 0)
      return "model.soft_mask = " + shortest(config_.soft_mask) + " sees tokens to come, must be 0";
    return step_refusal();
  }
  torch::Tensor embed_patches(const torch::Tensor& images) const override {
    return patch_embed_->forward(images).flatten(1, 2);
  }
  torch::Tensor front_tokens() const override { return last() ? torch::Tensor() : cls_token_; }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (ConvBottleneck::first_values(name, parameter, fill)) return;
    if (name == "patch_embed.proj.weight")
      fill.fan_in_uniform(parameter[0].numel());
    else if (name == "patch_embed.proj.bias")
      fill.fan_in_uniform(config_.in_channels * config_.patch_size * config_.patch_size);
    else if (name == "pos_embed" || name == "cls_token" || parameter.dim() == 2)
      fill.truncated_normal(config_.init_std);
  }

 protected:
  int64_t sequence_length() const override { return rows_ * columns_ + 1; }

  torch::Tensor position_at(int64_t place) const override {
    return pos_embed_.defined() ? pos_embed_.slice(1, place, place + 1) : torch::Tensor();
  }

  torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t place,
                           std::vector<torch::Tensor>& state) override {
    const nn::Rotation at =
        config_.ropes() ? rotation(torch::full({1}, place, torch::kFloat64)) : nn::Rotation();
    return blocks_[static_cast<size_t>(index)]->step(x, at, state);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    const auto& block = blocks_[static_cast<size_t>(index)];
    const int64_t side = config_.window_of(index), count = side * side;
    if (side == 0) return block->forward(x, tokens.extras, context);
    // A window is a separate sequence in row-major order.
    nn::AttentionExtras inside;
    if (config_.ropes()) inside.rotation = rotation(torch::arange(count, torch::kFloat64));
    return block->forward_in_windows(x, tokens, {side, masked(inside, count, -1, x)}, context);
  }

  torch::Tensor norm_tokens(const torch::Tensor& last_tokens) override { return norm_(last_tokens); }

  torch::Tensor read(const torch::Tensor& x, const TokenPlaces&, const Context&) override {
    return norm_(x.select(1, last() ? -1 : 0));
  }

 private:
  bool last() const { return config_.class_token == ClassToken::last; }

  nn::Rotation rotation(const torch::Tensor& places) const {
    return nn::rotation_1d(places, config_.dim / config_.heads, config_.rope_theta);
  }

  torch::Tensor positions_for(int64_t rows, int64_t columns) const {
    if (rows == rows_ && columns == columns_) return pos_embed_;
    const torch::Tensor front = last() ? pos_embed_.roll(1, 1) : pos_embed_;
    const torch::Tensor moved =
        nn::resample_tokens(front, 1, rows_, columns_, rows, columns, nn::Resample::bicubic_antialias);
    return last() ? moved.roll(-1, 1) : moved;
  }

  std::string window_refusal() const {
    if (config_.window_size > 0) return "model.window_size cuts the whole map into windows";
    return config_.conv_blocks.empty() ? "" : "model.conv_blocks read the neighbours of every patch";
  }

  // Adds the causal mask of `count` tokens. The modified mask lets token `all_seeing` see all of them (-1 =
  // none). `like` has the type and device of the tokens.
  nn::AttentionExtras masked(nn::AttentionExtras extras, int64_t count, int64_t all_seeing,
                             const torch::Tensor& like) const {
    // Evaluation uses the causal mask; the soft share is only for training.
    const double soft = is_training() ? soft_ : 0;
    if (config_.mask == Mask::none) return extras;
    if (config_.mask == Mask::after) {
      extras.future_weight = soft;
    } else if (config_.mask == Mask::before && soft == 0) {
      extras.causal = true;
    } else {
      const auto type = like.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
      torch::Tensor seen = torch::ones({count, count}, like.options().dtype(type)).tril();
      if (config_.mask == Mask::modified && all_seeing >= 0) seen.select(0, all_seeing).fill_(1);
      // 0 where seen, log of the soft share (or -inf) elsewhere.
      extras.bias = torch::log(soft + (1 - soft) * seen);
    }
    return extras;
  }

  Config config_;
  double soft_;  // share of the bi-directional mask in training
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

Family family() {
  const Value whole_image = table({{"crop", 1.0}, {"crop_mode", "squash"}});  // the code's, from 384 on
  return make_family<ImageLlama, Config>(
      "illama", "iLLaMA: a causal LLaMA block on patches",
      {
          {"illama_tiny_patch16_224", {"illama_tiny"}, size(192, 12, 3)},
          {"illama_small_patch16_224", {"illama_small"}, size(384, 12, 6)},
          {"illama_base_patch16_224", {"illama_base"}, size(768, 12, 12)},
          {"illama_large_patch16_224", {"illama_large"}, size(1024, 24, 16)},
          {"illama_base_patch16_384", {"illama_base (384)"}, size(768, 12, 12, 384), whole_image},
          {"illama_large_patch16_384", {}, size(1024, 24, 16, 384), whole_image},
      });
}

}  // namespace tessera::models::illama

// --- training: the soft mask over a run, and first weights from a larger model

namespace tessera::models {

double rate_at(const RateSchedule& s, int64_t step) {
  if (s.mode == RateMode::standard) return s.rate;
  const int64_t early = s.cutoff_epoch * s.steps_per_epoch;
  if (s.mode == RateMode::late) return step < early ? 0 : s.rate;
  if (step >= early) return 0;
  if (s.shape == RateShape::constant || step == 0) return s.rate;
  if (step + 1 == early) return 0;
  return s.rate - static_cast<double>(step) * (s.rate / static_cast<double>(early - 1));
}

std::vector<double> rates(const RateSchedule& s) {
  check(s.epochs >= 0 && s.steps_per_epoch >= 0 && s.cutoff_epoch >= 0 && s.cutoff_epoch <= s.epochs,
        "rate schedule: ", s.epochs, " epochs of ", s.steps_per_epoch, " steps with a cut-off at epoch ",
        s.cutoff_epoch, ": the cut-off must be within the epochs");
  std::vector<double> values;
  for (int64_t step = 0; step < s.epochs * s.steps_per_epoch; ++step) values.push_back(rate_at(s, step));
  return values;
}

torch::Tensor select_weights(const torch::Tensor& large, torch::IntArrayRef shape) {
  check(large.dim() == static_cast<int64_t>(shape.size()), "weight selection: a tensor of shape ",
        large.sizes(), " cannot be cut to ", shape);
  torch::Tensor selected = large;
  for (int64_t axis = 0; axis < large.dim(); ++axis) {
    const int64_t from = large.size(axis), to = shape[static_cast<size_t>(axis)];
    check(to > 0 && from >= to, "weight selection: axis ", axis, " of ", from, " elements cannot be cut to ",
          to);
    const torch::Tensor index =
        from % to == 0 ? torch::arange(to) * (from / to)
                       : torch::linspace(0, static_cast<double>(from - 1), to).round().to(torch::kInt64);
    selected = selected.index_select(axis, index.to(large.device()));
  }
  return selected;
}

}  // namespace tessera::models
