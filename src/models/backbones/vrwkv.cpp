// Vision-RWKV (Duan et al. 2024, "Vision-RWKV: efficient and scalable visual perception with RWKV-like
// architectures"). Parameters have the names of the published code inside a block; its layers.N are blocks.N.
//
//   x  = x + gamma1 * spatial_mix(ln1(x))     post-norm: x + gamma1 * ln1(spatial_mix(x))
//   x' = x + gamma2 * channel_mix(ln2(x))
//   scores = head(mean of ln1(x_L))
// The first block has a norm ln0 before it. The published code divides spatial_decay and spatial_first by the
// number of tokens; the paper divides only the decay.
#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/patch_mask.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/wkv_mix.h"

namespace tessera::models::vrwkv {
namespace {

enum class MixInit { fancy, local, global };

}  // namespace
}  // namespace tessera::models::vrwkv

template <>
struct tessera::EnumNames<tessera::models::vrwkv::MixInit> {
  static constexpr std::array names = {"fancy", "local", "global"};
};
template <>
struct tessera::EnumNames<tessera::nn::WkvForm> {
  static constexpr std::array names = {"paper", "published"};
};

namespace tessera::models::vrwkv {
namespace {

struct Config : IsotropicSettings {
  int64_t hidden_rate = 4, shift_pixels = 1;
  double channel_gamma = 0.25, init_values = 0;
  MixInit mix_init = MixInit::fancy;
  bool post_norm = false, key_norm = false, final_norm = true;
  nn::WkvForm wkv = nn::WkvForm::paper;

  Config() { heads = 1, drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, kPatchSize, "side of a patch in pixels");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("hidden_rate", hidden_rate, between(1, 64), "hidden width of the channel mix as a multiple of dim");
    v("channel_gamma", channel_gamma, between(0, 0.25), "share of the channels that q-shift moves each way");
    v("shift_pixels", shift_pixels, between(0, 1024), "patches that q-shift moves them by, 0 = no shift");
    v("mix_init", mix_init, choice<MixInit>(),
      "first values of decay, first and mix: by layer and channel, 1, or 0");
    v("init_values", init_values, at_least(0), "first value of layer scale, 0 = none");
    v("post_norm", post_norm, "norms after the two layers of a block instead of before");
    v("key_norm", key_norm, "a norm of the WKV result, and of the hidden values of the channel mix");
    v("final_norm", final_norm, "the norm after the last block");
    v("wkv", wkv, choice<nn::WkvForm>(),
      "the paper's formula, or the numbers of the published CUDA kernel (slow; for its weights)");
    visit_drop_path(v);
  }

  void check() const { check_size(); }

  nn::WkvMixOptions mix() const {
    return {.dim = dim,
            .hidden = hidden_rate * dim,
            .channel_gamma = channel_gamma,
            .shift_pixels = shift_pixels,
            .key_norm = key_norm,
            .form = wkv};
  }
};

constexpr nn::LayerNormOptions kNorm{.eps = 1e-5};

class WkvBlock final : public torch::nn::Module {
 public:
  WkvBlock(const Config& config, int64_t index, double drop)
      : post_norm_(config.post_norm), index_(index), drop_(drop) {
    if (config.init_values > 0) {
      gamma1_ = register_parameter("gamma1", nn::ones({config.dim}).mul_(config.init_values));
      gamma2_ = register_parameter("gamma2", nn::ones({config.dim}).mul_(config.init_values));
    }
    ln1_ = register_module("ln1", nn::LayerNorm(config.dim, kNorm));
    ln2_ = register_module("ln2", nn::LayerNorm(config.dim, kNorm));
    if (index == 0) ln0_ = register_module("ln0", nn::LayerNorm(config.dim, kNorm));
    att_ = register_module("att", nn::SpatialMix(config.mix()));
    ffn_ = register_module("ffn", nn::ChannelMix(config.mix()));
  }

  torch::Tensor forward(const torch::Tensor& given, const nn::WkvGrid& grid, const Context& context) {
    const torch::Tensor x = ln0_ ? ln0_->forward(given) : given;
    const auto spatial = [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
      if (!post_norm_) return att_->forward(ln1_->forward(kept), grid, epilogue);
      return ended(ln1_->forward(att_->forward(kept, grid)), epilogue);
    };
    const auto channel = [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
      if (!post_norm_) return ended(ffn_->forward(ln2_->forward(kept), grid), epilogue);
      return ended(ln2_->forward(ffn_->forward(kept, grid)), epilogue);
    };
    const torch::Tensor y = nn::residual(x, gamma1_, drop_, is_training(), 2 * index_, context, spatial);
    return nn::residual(y, gamma2_, drop_, is_training(), 2 * index_ + 1, context, channel);
  }

  int64_t macs() const { return att_->macs() + ffn_->macs(); }  // per token

 private:
  static torch::Tensor ended(const torch::Tensor& branch, const nn::Epilogue& epilogue) {
    const torch::Tensor scaled = epilogue.scale.defined() ? branch * epilogue.scale : branch;
    return epilogue.residual.defined() ? epilogue.residual + scaled : scaled;
  }

  bool post_norm_;
  int64_t index_;
  double drop_;
  torch::Tensor gamma1_, gamma2_;
  nn::LayerNorm ln0_{nullptr}, ln1_{nullptr}, ln2_{nullptr};
  nn::SpatialMix att_{nullptr};
  nn::ChannelMix ffn_{nullptr};
};

// Returns the published initial values of one vector of a block.
torch::Tensor fancy_values(const std::string& name, int64_t index, int64_t depth, int64_t dim, bool spatial) {
  const double progress = depth > 1 ? static_cast<double>(index) / static_cast<double>(depth - 1) : 0;
  const double rest = 1 - static_cast<double>(index) / static_cast<double>(depth);
  const torch::Tensor channel = torch::arange(dim, torch::kFloat64);
  if (name == "spatial_decay")
    return -5 +
           8 * torch::pow(channel / static_cast<double>(std::max<int64_t>(dim - 1, 1)), 0.7 + 1.3 * progress);
  if (name == "spatial_first") return std::log(0.3) + 0.5 * (torch::remainder(channel + 1, 3) - 1);
  const torch::Tensor share = channel / static_cast<double>(dim);
  if (name == "spatial_mix_v") return torch::pow(share, rest) + 0.3 * progress;
  if (name == "spatial_mix_r" && spatial) return torch::pow(share, 0.5 * rest);
  return torch::pow(share, rest);
}

class Vrwkv final : public IsotropicBackbone, public MasksPatches {
 public:
  explicit Vrwkv(const Config& config) : config_(config) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    pos_embed_ = register_parameter("pos_embed", nn::zeros({1, rows_ * columns_, config.dim}));
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, 0, true, config.in_channels));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<WkvBlock>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    if (config.final_norm) norm_ = register_module("ln1", nn::LayerNorm(config.dim, kNorm));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }
  std::string keep_refusal() const override {
    return config_.shift_pixels > 0 ? "q-shift reads the neighbours of every patch" : "";
  }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t per_token = 0;
    for (const auto& block : blocks_) per_token += block->macs();
    return patch_embed_->macs(height, width) + config_.patches(height, width) * per_token;
  }

  std::vector<std::string> no_weight_decay() const override { return {}; }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed") return {};
    return nn::fit_square_tokens(stored, 0, rows_, columns_, config_.dim, nn::Resample::bicubic);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = with_mask_tokens(patch_embed_(images));
    Tokens tokens;
    tokens.rows = patches.size(1), tokens.columns = patches.size(2);
    tokens.x = patches.flatten(1, 2) + nn::resample_tokens(pos_embed_, 0, rows_, columns_, tokens.rows,
                                                           tokens.columns, nn::Resample::bicubic);
    return tokens;
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name.starts_with("patch_embed.proj."))
      return fill.fan_in_uniform(config_.in_channels * config_.patch_size * config_.patch_size);
    if (const size_t at = name.find(".spatial_"); at != std::string::npos)
      return first_mix(name, at, parameter, fill);
    if (parameter.dim() == 2) fill.truncated_normal(0.02);
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, {tokens.rows, tokens.columns}, context);
  }
  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_ ? norm_(last) : last; }
  torch::Tensor read(const torch::Tensor& x, const TokenPlaces&, const Context&) override {
    return norm_tokens(x).mean(1);
  }

 private:
  // "blocks.3.att.spatial_decay"; `at` is the place of ".spatial_".
  void first_mix(const std::string& name, size_t at, const torch::Tensor& parameter,
                 const nn::Filler& fill) const {
    const std::string field = name.substr(at + 1);
    const bool mix = field.starts_with("spatial_mix");
    if (config_.mix_init == MixInit::local) return fill.constant(1);
    if (config_.mix_init == MixInit::global) return fill.constant(mix ? 0.5 : 0);
    const int64_t index = std::stoll(name.substr(std::string("blocks.").size()));
    const bool spatial = name.find(".att.") != std::string::npos;
    parameter.copy_(fancy_values(field, index, config_.depth, config_.dim, spatial).view(parameter.sizes()));
  }

  Config config_;
  int64_t rows_ = 0, columns_ = 0;
  torch::Tensor pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  std::vector<std::shared_ptr<WkvBlock>> blocks_;
  nn::LayerNorm norm_{nullptr};
};

Value size(int64_t dim, int64_t depth, Value rest = table({})) {
  Value settings = table({{"dim", dim}, {"depth", depth}});
  merge(settings, rest);
  return settings;
}

}  // namespace

Family family() {
  const auto post_norm = [](double init_values) {
    return table({{"post_norm", true}, {"init_values", init_values}});
  };
  const Value large =
      table({{"post_norm", true}, {"init_values", 1e-5}, {"key_norm", true}, {"image_size", 384}});
  return make_family<Vrwkv, Config>(
      "vrwkv", "Vision-RWKV: bidirectional WKV attention and q-shift",
      {
          {"vrwkv_tiny_patch16_224", {"vrwkv_t", "vrwkv_tiny"}, size(192, 12)},
          {"vrwkv_small_patch16_224", {"vrwkv_s", "vrwkv_small"}, size(384, 12, post_norm(1.0))},
          {"vrwkv_base_patch16_224", {"vrwkv_b", "vrwkv_base"}, size(768, 12, post_norm(1e-5))},
          {"vrwkv_large_patch16_384", {"vrwkv_l", "vrwkv_large"}, size(1024, 24, large)},
      });
}

}  // namespace tessera::models::vrwkv
