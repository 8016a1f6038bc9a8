// EVA-02 (Fang et al. 2024, "EVA-02: a visual representation for neon genesis"), and the towers of EVA-CLIP (Sun et
// al. 2023). Names of parameters and sizes are timm's.
//
//   x_0 = [class token; patches W] + positions
//   y   = x + gamma_1 * attention(norm1(x))         x' = y + gamma_2 * mlp(norm2(y))
//   mlp(z) = fc2(norm(silu(gate z) * (up z)))       the norm from B on (sub-LN); T and S: gate and up in one matrix
//   scores = head(fc_norm(mean of the patches of x_L))   or head(norm(x_L)[class token])
//
// q and k of the patches are rotated over the grid (2-D RoPE), with positions scaled to a grid of 16 x 16 at
// any resolution. k has no bias. EVA-CLIP also norms the heads' output before the projection.
#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/patch_mask.h"
#include "nn/attention.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"
#include "ops/linear.h"

namespace tessera::models::eva02 {

enum class EvaPool { avg, token };
enum class EvaMlp { swiglu, gelu };

}  // namespace tessera::models::eva02

template <>
struct tessera::EnumNames<tessera::models::eva02::EvaPool> {
  static constexpr std::array names = {"avg", "token"};
};
template <>
struct tessera::EnumNames<tessera::models::eva02::EvaMlp> {
  static constexpr std::array names = {"swiglu", "gelu"};
};

namespace tessera::models::eva02 {
namespace {

struct Config : IsotropicSettings {
  double mlp_ratio = 4.0 * 2 / 3;
  EvaMlp mlp = EvaMlp::swiglu;
  bool qkv_bias = true, qkv_fused = true, qk_norm = false;
  bool scale_mlp = false, scale_attn_inner = false;
  double init_values = 0;
  EvaPool global_pool = EvaPool::avg;
  bool class_token = true, positions = true, rotary = true;
  int64_t reference_grid = 16;
  double rope_theta = 10000;

  Config() {
    patch_size = 14;
    drop_path_decay = true;
  }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of dim");
    v("mlp", mlp, choice<EvaMlp>(), "swiglu: gated by silu (EVA-02); gelu: plain (EVA)");
    v("qkv_bias", qkv_bias, "biases of q and v");
    v("qkv_fused", qkv_fused, "q, k and v in one matrix (T and S)");
    v("qk_norm", qk_norm, "normalise q and k in each head");
    v("scale_mlp", scale_mlp, "a norm inside the MLP; swiglu: gate and up then have a matrix each");
    v("scale_attn_inner", scale_attn_inner, "a norm before the projection after attention (EVA-CLIP)");
    v("init_values", init_values, at_least(0), "first value of layer scale, 0 = none");
    v("global_pool", global_pool, choice<EvaPool>(),
      "avg: the head reads the mean of the patches, normed; token: the normed class token");
    v("class_token", class_token, "a learned token before the patches");
    v("positions", positions, "learned absolute positions");
    v("rotary", rotary, "rotary positions of the patches");
    v("reference_grid", reference_grid, between(0, 4096),
      "cells along a side of the grid that rotary positions are scaled to, 0 = unscaled");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    visit_drop_path(v);
  }

  void check() const {
    check_size();
    if (rotary && dim / heads % 4 != 0)
      fail_usage("model.rotary needs heads of a multiple of 4 channels, model.dim = ", dim,
                 " and model.heads = ", heads, " give ", dim / heads);
    if (global_pool == EvaPool::token && !class_token)
      fail_usage("model.global_pool = \"token\" needs class_token = true");
    if (hidden() < 1) fail_usage("model.mlp_ratio ", mlp_ratio, " leaves the MLP no hidden width");
  }
  int64_t hidden() const { return static_cast<int64_t>(static_cast<double>(dim) * mlp_ratio); }
};

class EvaAttention : public torch::nn::Module {
 public:
  explicit EvaAttention(const Config& config) : heads_(config.heads) {
    const int64_t dim = config.dim;
    if (config.qkv_fused) {
      if (config.qkv_bias) {
        q_bias_ = register_parameter("q_bias", nn::zeros({dim}));
        v_bias_ = register_parameter("v_bias", nn::zeros({dim}));
      }
      qkv_ = register_module("qkv", nn::Linear(dim, 3 * dim, false));
    } else {
      q_ = register_module("q_proj", nn::Linear(dim, dim, config.qkv_bias));
      k_ = register_module("k_proj", nn::Linear(dim, dim, false));
      v_ = register_module("v_proj", nn::Linear(dim, dim, config.qkv_bias));
    }
    if (config.qk_norm) {
      q_norm_ = register_module("q_norm", nn::LayerNorm(dim / heads_));
      k_norm_ = register_module("k_norm", nn::LayerNorm(dim / heads_));
    }
    if (config.scale_attn_inner) norm_ = register_module("norm", nn::LayerNorm(dim));
    proj_ = register_module("proj", nn::Linear(dim, dim));
  }

  // Maps x [batch, tokens, dim] to the same shape.
  torch::Tensor forward(const nn::DeferredNorm& x, const nn::AttentionExtras& extras,
                        const nn::Epilogue& epilogue) {
    auto [q, k, v] = project(x);
    if (q_norm_) q = q_norm_(q), k = k_norm_(k);
    const torch::Tensor merged = nn::AttentionImpl::merge(nn::attend(q, k, v, extras));
    return proj_->forward(norm_ ? norm_->before_linear(merged) : nn::DeferredNorm(merged), epilogue);
  }

  int64_t macs(int64_t tokens) const {
    const int64_t layers = qkv_ ? qkv_->macs() : q_->macs() + k_->macs() + v_->macs();
    return tokens * (layers + proj_->macs()) + 2 * tokens * tokens * proj_->weight.size(0);
  }

 private:
  // q, k and v [batch, heads, tokens, d].
  std::array<torch::Tensor, 3> project(const nn::DeferredNorm& given) {
    const auto split = [this](const torch::Tensor& all) {
      return all.unflatten(-1, {heads_, all.size(-1) / heads_}).transpose(1, 2);
    };
    if (!qkv_) {
      const torch::Tensor x = given;
      return {split(q_(x)), split(k_(x)), split(v_(x))};
    }
    torch::Tensor packed = qkv_(given);
    if (q_bias_.defined())
      packed = packed + torch::cat({q_bias_, torch::zeros_like(q_bias_), v_bias_}).to(packed.scalar_type());
    const auto parts = packed.chunk(3, -1);
    return {split(parts[0]), split(parts[1]), split(parts[2])};
  }

  int64_t heads_;
  nn::Linear qkv_{nullptr}, q_{nullptr}, k_{nullptr}, v_{nullptr}, proj_{nullptr};
  torch::Tensor q_bias_, v_bias_;
  nn::LayerNorm q_norm_{nullptr}, k_norm_{nullptr}, norm_{nullptr};
};

class EvaFeedForward : public torch::nn::Module {
 public:
  explicit EvaFeedForward(const Config& config) : kind_(config.mlp) {
    const int64_t dim = config.dim, hidden = config.hidden();
    const bool gated = kind_ == EvaMlp::swiglu;
    if (gated && config.scale_mlp) {
      gate_ = register_module("fc1_g", nn::Linear(dim, hidden));
      up_ = register_module("fc1_x", nn::Linear(dim, hidden));
    } else {
      fc1_ = register_module("fc1", nn::Linear(dim, gated ? 2 * hidden : hidden));
    }
    if (config.scale_mlp) norm_ = register_module("norm", nn::LayerNorm(hidden));
    fc2_ = register_module("fc2", nn::Linear(hidden, dim));
  }

  torch::Tensor forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue) {
    const torch::Tensor inner = hidden(x);
    return fc2_->forward(norm_ ? norm_->before_linear(inner) : nn::DeferredNorm(inner), epilogue);
  }
  int64_t macs() const {  // per token
    return (fc1_ ? fc1_->macs() : gate_->macs() + up_->macs()) + fc2_->macs();
  }

 private:
  torch::Tensor hidden(const nn::DeferredNorm& given) {
    if (kind_ == EvaMlp::gelu) return fc1_->forward_gelu(given);
    if (fc1_) {
      const auto parts = fc1_(given).chunk(2, -1);
      return ops::activation(ops::ActivationKind::silu, parts[0], parts[1]);
    }
    const torch::Tensor x = given;
    return ops::activation(ops::ActivationKind::silu, gate_(x), up_(x));
  }

  EvaMlp kind_;
  nn::Linear fc1_{nullptr}, gate_{nullptr}, up_{nullptr}, fc2_{nullptr};
  nn::LayerNorm norm_{nullptr};
};

class EvaBlock : public torch::nn::Module {
 public:
  EvaBlock(const Config& config, int64_t index, double drop_path)
      : index_(index), drop_path_(drop_path), name_("blocks." + std::to_string(index)) {
    const bool scales = config.init_values > 0;
    const auto gamma = [&](const char* name) {
      return register_parameter(name, nn::ones({config.dim}).mul_(config.init_values));
    };
    norm1_ = register_module("norm1", nn::LayerNorm(config.dim));
    attn_ = register_module("attn", std::make_shared<EvaAttention>(config));
    if (scales) gamma_1_ = gamma("gamma_1");
    norm2_ = register_module("norm2", nn::LayerNorm(config.dim));
    mlp_ = register_module("mlp", std::make_shared<EvaFeedForward>(config));
    if (scales) gamma_2_ = gamma("gamma_2");
  }

  // Maps x [batch, tokens, dim] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& shared, const Context& context) {
    nn::AttentionExtras extras = shared;
    extras.taps = context.taps, extras.name = name_;
    const torch::Tensor y = nn::residual(
        x, gamma_1_, drop_path_, is_training(), 2 * index_, context,
        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
          return attn_->forward(norm1_->before_linear(kept), nn::of_samples(extras, samples), epilogue);
        });
    return nn::residual(y, gamma_2_, drop_path_, is_training(), 2 * index_ + 1, context,
                        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
                          return mlp_->forward(norm2_->before_linear(kept), epilogue);
                        });
  }
  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_->macs(); }

 private:
  int64_t index_;
  double drop_path_;
  std::string name_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  std::shared_ptr<EvaAttention> attn_;
  std::shared_ptr<EvaFeedForward> mlp_;
  torch::Tensor gamma_1_, gamma_2_;
};

class Eva final : public IsotropicBackbone, public MasksPatches {
 public:
  explicit Eva(const Config& config) : config_(config), prefix_(config.class_token ? 1 : 0) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    if (config.class_token) cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, config.dim}));
    if (config.positions)
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, prefix_ + rows_ * columns_, config.dim}));
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, 0, true, config.in_channels));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<EvaBlock>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    const bool mean = config.global_pool == EvaPool::avg;
    norm_ = register_module(mean ? "fc_norm" : "norm", nn::LayerNorm(config.dim));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width) + prefix_;
    int64_t total = patch_embed_->macs(height, width);
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total;
  }

  std::vector<std::string> no_weight_decay() const override { return {"pos_embed", "cls_token"}; }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined()) return {};
    return nn::fit_square_tokens(stored, prefix_, rows_, columns_, config_.dim,
                                 nn::Resample::bicubic_antialias);
  }

  // Initialises as timm: layers before a residual get smaller values with depth, and the head starts near
  // zero.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    constexpr double kDeviation = 0.02, kHeadScale = 0.001;
    if (name.starts_with("patch_embed.proj."))
      fill.fan_in_uniform(config_.in_channels * config_.patch_size * config_.patch_size);
    else if (name.starts_with("blocks.") &&
             (nn::ends_with(name, "attn.proj.weight") || nn::ends_with(name, "mlp.fc2.weight")))
      fill.truncated_normal(kDeviation / std::sqrt(2.0 * (std::stod(name.substr(7)) + 1)));
    else if (name == "head.weight")
      fill.truncated_normal(kDeviation * kHeadScale);
    else if (parameter.dim() > 1)
      fill.truncated_normal(kDeviation);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = with_mask_tokens(patch_embed_(images));
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    torch::Tensor x = patches.reshape({batch, rows * columns, config_.dim});
    if (prefix_) x = torch::cat({cls_token_.expand({batch, -1, -1}), x}, 1);
    if (pos_embed_.defined())
      x = x + nn::resample_tokens(pos_embed_, prefix_, rows_, columns_, rows, columns,
                                  nn::Resample::bicubic_antialias);
    Tokens tokens;
    tokens.x = x;
    tokens.rows = rows, tokens.columns = columns, tokens.before = prefix_;
    if (config_.rotary) tokens.extras.rotation = rotation(rows, columns);
    return tokens;
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens.extras, context);
  }

  // If the head reads the mean, tokens have no norm of their own before it.
  torch::Tensor norm_tokens(const torch::Tensor& last) override {
    return config_.global_pool == EvaPool::token ? norm_(last) : last;
  }

  torch::Tensor read(const torch::Tensor& last, const TokenPlaces& places, const Context& context) override {
    tap(context.taps, "tokens", norm_tokens(last));
    if (config_.global_pool == EvaPool::token) return norm_(last).select(1, 0);
    return norm_(last.slice(1, places.before).mean(1));
  }

 private:
  // The class token is not rotated.
  nn::Rotation rotation(int64_t rows, int64_t columns) const {
    const nn::GridRotary options{.frequencies = nn::GridFrequencies::cells,
                                 .theta = config_.rope_theta,
                                 .trained_rows = config_.reference_grid,
                                 .trained_columns = config_.reference_grid};
    const torch::Tensor angles =
        nn::rotation_over_grid(rows, columns, config_.dim / config_.heads, options).angles;
    return {torch::cat({torch::zeros({prefix_, angles.size(1)}, angles.options()), angles})};
  }

  Config config_;
  int64_t prefix_, rows_ = 0, columns_ = 0;
  torch::Tensor cls_token_, pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  std::vector<std::shared_ptr<EvaBlock>> blocks_;
  nn::LayerNorm norm_{nullptr};
};

Value size(int64_t dim, int64_t depth, int64_t heads, int64_t side, Value extra = {}) {
  Value settings = table({{"dim", dim}, {"depth", depth}, {"heads", heads}, {"image_size", side}});
  merge(settings, extra);
  return settings;
}

// From size B on: separate q, k and v, and a norm in the MLP.
Value large(Value::Table extra = {}) {
  Value settings = table({{"qkv_fused", false}, {"scale_mlp", true}});
  merge(settings, Value(std::move(extra)));
  return settings;
}

// The head of a CLIP tower is its projection.
Value clip(int64_t patch, int64_t outputs) {
  return large(
      {{"scale_attn_inner", true}, {"global_pool", "token"}, {"patch_size", patch}, {"classes", outputs}});
}

Value without_head(Value settings = {}) {
  settings.set("classes", int64_t{0});
  return settings;
}

// The pixels of CLIP.
Value preprocess(bool whole) {
  Value settings = table({{"mean", Value::Array{0.48145466, 0.4578275, 0.40821073}},
                          {"std", Value::Array{0.26862954, 0.26130258, 0.27577711}}});
  settings.set("crop", whole ? 1.0 : 0.9);
  return settings;
}

}  // namespace

Family family() {
  return make_family<Eva, Config>(
      "eva02", "EVA-02 and the towers of EVA-CLIP: 2-D RoPE, SwiGLU with a norm inside",
      {
          {"eva02_tiny_patch14_224", {}, size(192, 12, 3, 224, without_head()), preprocess(false)},
          {"eva02_small_patch14_224", {}, size(384, 12, 6, 224, without_head()), preprocess(false)},
          {"eva02_base_patch14_224", {}, size(768, 12, 12, 224, without_head(large())), preprocess(false)},
          {"eva02_large_patch14_224", {}, size(1024, 24, 16, 224, without_head(large())), preprocess(false)},
          {"eva02_tiny_patch14_336", {}, size(192, 12, 3, 336), preprocess(true)},
          {"eva02_small_patch14_336", {}, size(384, 12, 6, 336), preprocess(true)},
          {"eva02_base_patch14_448", {}, size(768, 12, 12, 448, large()), preprocess(true)},
          {"eva02_large_patch14_448", {}, size(1024, 24, 16, 448, large()), preprocess(true)},
          {"eva02_base_patch16_clip_224", {}, size(768, 12, 12, 224, clip(16, 512)), preprocess(false)},
          {"eva02_large_patch14_clip_224", {}, size(1024, 24, 16, 224, clip(14, 768)), preprocess(false)},
          {"eva02_large_patch14_clip_336", {}, size(1024, 24, 16, 336, clip(14, 768)), preprocess(true)},
      });
}

}  // namespace tessera::models::eva02
