// AIM (El-Nouby et al. 2024, "Scalable pre-training of large autoregressive image models"). Names of parameters are
// timm's for the trunk, the authors' for the head; the authors' files are renamed on loading.
//
//   x_0 = norm(patches W + b) + fixed positions
//   y   = x + attention(norm1(x))      x' = y + mlp(norm2(y))     no biases except in norms
//   probe:  z = batchnorm(mean of the outputs of the last probe_layers blocks)
//           scores = linear(softmax(q (K z)^T / sqrt(d)) V z), q a learned query per head
//
// Pre-training predicts each patch from those before it. A prefix of random length is seen by all tokens
// (prefix_bias), so that the trunk works without a mask afterwards.
#include "models/backbones/baselines.h"

#include <algorithm>
#include <limits>

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

namespace tessera::models {

torch::Tensor prefix_bias(const torch::Tensor& in_prefix) {
  const int64_t tokens = in_prefix.size(1);
  const torch::Tensor later = torch::ones({tokens, tokens}, in_prefix.options()).triu(1);
  const torch::Tensor hidden =
      later.logical_and(in_prefix.logical_not().unsqueeze(1));  // [batch, query, key]
  return torch::zeros(hidden.sizes(), in_prefix.options().dtype(torch::kFloat32))
      .masked_fill(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(1);
}

}  // namespace tessera::models

namespace tessera::models::aim {
namespace {

struct Config : IsotropicSettings {
  double mlp_ratio = 4;
  Value probe_layers = 6;
  bool head_bias = false;

  Config() { patch_size = 14, dim = 1536, depth = 24, heads = 12; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of dim");
    v("probe_layers", probe_layers,
      "the head reads the mean of these blocks: a number of last blocks, or a list counted from 0");
    v("head_bias", head_bias, "a bias of the class head");
    visit_drop_path(v);
  }

  void check() const {
    check_size();
    if (dim % 4 != 0) fail_usage("model.dim = ", dim, ", fixed positions need a multiple of 4");
    probed();
  }

  // Returns the numbers of the probed blocks. Throws a usage error for blocks that the model lacks.
  std::vector<int64_t> probed() const {
    std::vector<int64_t> blocks;
    if (probe_layers.is_int()) {
      const int64_t last = probe_layers.as_int();
      if (last < 1 || last > depth)
        fail_usage("model.probe_layers = ", last, ", must be 1 to ", depth, " (model.depth), or a list");
      for (int64_t block = depth - last; block < depth; ++block) blocks.push_back(block);
      return blocks;
    }
    if (!probe_layers.is_array() || probe_layers.as_array().empty())
      fail_usage("model.probe_layers must be a number of blocks or a list of their numbers");
    for (const Value& block : probe_layers.as_array()) {
      if (!block.is_int() || block.as_int() < 0 || block.as_int() >= depth)
        fail_usage("model.probe_layers: there is no block ", toml_text(block), ", must be 0 to ", depth - 1);
      blocks.push_back(block.as_int());
    }
    return blocks;
  }
  int64_t hidden() const { return static_cast<int64_t>(static_cast<double>(dim) * mlp_ratio); }
};

class AimBlock : public torch::nn::Module {
 public:
  AimBlock(const Config& config, int64_t index, double drop_path)
      : index_(index), drop_path_(drop_path), name_("blocks." + std::to_string(index)) {
    norm1_ = register_module("norm1", nn::LayerNorm(config.dim));
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads, /*qkv_bias=*/false,
                                                  /*qk_norm=*/false, /*proj_bias=*/false));
    norm2_ = register_module("norm2", nn::LayerNorm(config.dim));
    mlp_ = register_module("mlp", nn::Mlp(config.dim, config.hidden(), /*with_bias=*/false));
  }

  // Maps x [batch, tokens, dim] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& shared, const Context& context) {
    nn::AttentionExtras extras = shared;
    extras.taps = context.taps, extras.name = name_;
    const torch::Tensor y = nn::residual(
        x, {}, drop_path_, is_training(), 2 * index_, context,
        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
          return attn_->forward(norm1_->before_linear(kept), nn::of_samples(extras, samples), epilogue);
        });
    return nn::residual(y, {}, drop_path_, is_training(), 2 * index_ + 1, context,
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
  nn::Attention attn_{nullptr};
  nn::Mlp mlp_{nullptr};
};

// The attention-probe head without its last layer. Parameters cls_token, k, v; buffers bn.
class AttentionProbe : public torch::nn::Module {
 public:
  AttentionProbe(int64_t dim, int64_t heads) : heads_(heads) {
    query_ = register_parameter("cls_token", nn::zeros({1, 1, dim}));
    keys_ = register_module("k", nn::Linear(dim, dim, false));
    values_ = register_module("v", nn::Linear(dim, dim, false));
    norm_ = register_module("bn", nn::BatchNorm(dim));
  }

  // Maps x [batch, tokens, dim] to [batch, dim].
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t batch = x.size(0);
    const torch::Tensor normed = norm_(x.flatten(0, 1)).unflatten(0, {-1, x.size(1)});
    const auto split = [this](const torch::Tensor& all) {
      return all.unflatten(-1, {heads_, all.size(-1) / heads_}).transpose(1, 2);
    };
    const torch::Tensor k = split(keys_(normed)), v = split(values_(normed));
    const torch::Tensor q = split(query_.to(k.scalar_type()).expand({batch, -1, -1}));
    return nn::AttentionImpl::merge(nn::attend(q, k, v)).flatten(1);
  }
  int64_t macs(int64_t tokens) const {
    return tokens * (keys_->macs() + values_->macs()) + 2 * tokens * query_.size(2);
  }

 private:
  int64_t heads_;
  torch::Tensor query_;
  nn::Linear keys_{nullptr}, values_{nullptr};
  nn::BatchNorm norm_{nullptr};
};

class Aim final : public IsotropicBackbone, public MasksPatches {
 public:
  explicit Aim(const Config& config) : config_(config), probed_(config.probed()) {
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, 0, true, config.in_channels));
    patch_norm_ = patch_embed_->register_module("norm", nn::LayerNorm(config.dim));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<AimBlock>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    norm_ = register_module("norm", nn::LayerNorm(config.dim));
    probe_ = register_module("head", std::make_shared<AttentionProbe>(config.dim, config.heads));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }
  std::vector<std::string> head_names() const override { return {"head.linear"}; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width);
    int64_t total = patch_embed_->macs(height, width) + probe_->macs(tokens);
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total;
  }

  std::vector<std::string> no_weight_decay() const override { return {"head.cls_token"}; }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "head.cls_token")
      fill.normal(0.02);
    else if (name == "patch_embed.proj.weight")
      fill.xavier_uniform();
    else if (parameter.dim() > 1)
      fill.truncated_normal(0.02);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = patch_embed_(images);
    Tokens tokens;
    tokens.rows = patches.size(1), tokens.columns = patches.size(2);
    const torch::Tensor x = with_mask_tokens(patch_norm_(patches)).flatten(1, 2);
    tokens.x = x + nn::sincos_2d(tokens.rows, tokens.columns, config_.dim).to(x.options());
    return tokens;
  }

  torch::Tensor embed(const torch::Tensor& images, const Context& context) override {
    std::vector<torch::Tensor> outputs;
    run(tokenise(images, context), context, &outputs);
    torch::Tensor sum;
    for (const int64_t block : probed_) {
      const torch::Tensor& output = outputs[static_cast<size_t>(block)];
      sum = sum.defined() ? sum + output : output;
    }
    return tap(context.taps, "embed", probe_->forward(sum / static_cast<double>(probed_.size())));
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    // The probe also reads the outputs of blocks: through the alias, a block's own gradients are summed
    // first, in every mode.
    return blocks_[static_cast<size_t>(index)]->forward(x.alias(), tokens.extras, context);
  }
  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_(last); }
  // Reads only the last block: embed() has the outputs of the others.
  torch::Tensor read(const torch::Tensor& last, const TokenPlaces&, const Context&) override {
    return probe_->forward(last);
  }

 private:
  Config config_;
  std::vector<int64_t> probed_;
  nn::PatchEmbed patch_embed_{nullptr};
  nn::LayerNorm patch_norm_{nullptr}, norm_{nullptr};
  std::vector<std::shared_ptr<AimBlock>> blocks_;
  std::shared_ptr<AttentionProbe> probe_;
};

Value size(int64_t dim, int64_t depth, int64_t heads) {
  return table({{"dim", dim}, {"depth", depth}, {"heads", heads}});
}

}  // namespace

Family family() {
  return make_family<Aim, Config>("aim",
                                  "AIM: autoregressive pre-training of a ViT, read by an attention probe",
                                  {
                                      {"aim_600m", {"aim_600M", "aim-600M-2B-imgs"}, size(1536, 24, 12)},
                                      {"aim_1b", {"aim_1B", "aim-1B-5B-imgs"}, size(2048, 24, 16)},
                                      {"aim_3b", {"aim_3B", "aim-3B-5B-imgs"}, size(3072, 24, 24)},
                                      {"aim_7b", {"aim_7B", "aim-7B-5B-imgs"}, size(4096, 32, 32)},
                                  });
}

}  // namespace tessera::models::aim
