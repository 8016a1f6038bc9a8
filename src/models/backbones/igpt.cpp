// iGPT (Chen et al. 2020, "Generative pretraining from pixels"): GPT-2's decoder on the colours of an image's pixels.
// Sizes and names are those of OpenAI's files in transformers (weights/names/baseline_names.cpp).
//
//   a_i  = argmin_k |pixel_i - palette_k|^2
//   x_0  = wte[a] + wpe
//   y    = x + proj(attention(rms(x)))            x' = y + fc2(quick_gelu(fc1 rms(y)))
//   scores = head(mean over pixels of rms(x_L))
// rms: x / sqrt(mean x^2 + 1e-5) * weight. A pixel sees itself and those before it. Pre-training puts a start token before
// the pixels (tasks/pretrain/igpt.h).
#include "models/backbones/igpt.h"

#include <cmath>

#include "core/error.h"
#include "models/base/capability.h"
#include "models/base/codebook.h"
#include "models/base/family.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/position.h"

namespace tessera::models {
namespace {

struct Config : IsotropicSettings {
  int64_t colours = 512, positions = 0, hidden = 0;
  double norm_eps = 1e-5;
  bool causal = true, inverse_layer_scale = false, head_bias = false;

  Config() { image_size = 32, patch_size = 1, dim = 512, depth = 24, heads = 8; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("colours", colours, between(2, 65536), "colours of the palette");
    v("positions", positions, between(0, 1 << 24), "learned positions, 0 = one for each cell of image_size");
    v("hidden", hidden, kHidden, "hidden width of the MLP, 0 = 4 dim");
    v("norm_eps", norm_eps, above(0), "eps of all norms");
    v("causal", causal, "a pixel sees itself and those before it, else all (task igpt's objective bert)");
    v("inverse_layer_scale", inverse_layer_scale, "divide the scores of layer i by i + 1");
    v("head_bias", head_bias, "a bias of the class head");
    visit_drop_path(v);
  }
  void check() const {
    check_size();
    if (in_channels != 3) fail_usage("model.in_channels = ", in_channels, ": igpt reads colours, must be 3");
    if (positions != 0 && positions < cells())
      fail_usage("model.positions = ", positions, " is below the ", cells(), " cells of model.image_size");
  }
  int64_t cells() const { return grid().height * grid().width; }
  int64_t width_inside() const { return hidden > 0 ? hidden : 4 * dim; }
};

class PixelBlock : public torch::nn::Module {
 public:
  PixelBlock(const Config& config, int64_t index, double drop_path)
      : index_(index),
        drop_path_(drop_path),
        scale_(config.inverse_layer_scale ? 1 / static_cast<double>(index + 1) : 1),
        name_("blocks." + std::to_string(index)) {
    norm1_ = register_module("norm1", nn::RmsNorm(config.dim, config.norm_eps));
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads));
    norm2_ = register_module("norm2", nn::RmsNorm(config.dim, config.norm_eps));
    mlp_ = register_module("mlp", nn::AnyMlp(nn::MlpForm::quick_gelu, config.dim, config.width_inside()));
  }

  torch::Tensor forward(const torch::Tensor& x, const Tokens& tokens, const Context& context) {
    nn::AttentionExtras extras = tokens.extras;
    extras.taps = context.taps, extras.name = name_;
    return branches(x, context, [&](const nn::DeferredNorm& normed, const torch::Tensor& samples) {
      const nn::AttentionExtras own = nn::of_samples(extras, samples);
      if (scale_ == 1) return attn_->mix(normed, own);
      const auto [q, k, v] = attn_->project(normed);
      return nn::AttentionImpl::merge(nn::attend(q * scale_, k, v, own));
    });
  }

  // Runs one more token, x [batch, 1, dim], with the keys and values of those before it.
  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) {
    return branches(x, {}, [&](const nn::DeferredNorm& normed, const torch::Tensor&) {
      const auto [q, k, v] = attn_->project(normed);
      if (state.empty())
        state = {k, v};
      else
        state = {torch::cat({state[0], k}, 2), torch::cat({state[1], v}, 2)};
      return nn::AttentionImpl::merge(nn::attend(q * scale_, state[0], state[1]));
    });
  }

  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_->macs(); }

 private:
  template <class Mix>
  torch::Tensor branches(const torch::Tensor& x, const Context& context, const Mix& mix) {
    const torch::Tensor y = nn::residual(
        x, {}, drop_path_, is_training(), 2 * index_, context,
        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
          return attn_->output(mix(norm1_->before_linear(kept), samples), epilogue);
        });
    return nn::residual(y, {}, drop_path_, is_training(), 2 * index_ + 1, context,
                        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
                          return mlp_->forward(norm2_->before_linear(kept), epilogue);
                        });
  }

  int64_t index_;
  double drop_path_, scale_;
  std::string name_;
  nn::RmsNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Attention attn_{nullptr};
  nn::AnyMlp mlp_{nullptr};
};

// A table of vectors, parameter weight.
struct Embedding : torch::nn::Module {
  Embedding(int64_t rows, int64_t width) { weight = register_parameter("weight", nn::zeros({rows, width})); }
  torch::Tensor weight;
};

class Igpt final : public CausalBackbone, public ReadsColours, public NeutralParameters {
 public:
  explicit Igpt(const Config& config)
      : config_(config), rows_(config.grid().height), columns_(config.grid().width) {
    palette_ = register_buffer(
        "palette", nn::ShapesOnly::active() ? nn::zeros({config.colours, 3}) : even_palette(config.colours));
    wte_ = register_module("wte", std::make_shared<Embedding>(config.colours + 1, config.dim));
    wpe_ = register_module("wpe", std::make_shared<Embedding>(sequence_length(), config.dim));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<PixelBlock>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    norm_ = register_module("norm", nn::RmsNorm(config.dim, config.norm_eps));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  torch::Tensor palette() const override { return palette_; }
  void set_palette(const torch::Tensor& palette) override {
    const torch::NoGradGuard no_grad;
    palette_.copy_(palette);
    palette_set_ = true;
  }
  std::vector<std::string> neutral_names() const override {
    return palette_set_ ? std::vector<std::string>{"palette"} : std::vector<std::string>{};
  }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t total = config_.patches(height, width) * palette_.numel();
    for (const auto& block : blocks_) total += block->macs(config_.patches(height, width));
    return total;
  }

  std::vector<std::string> no_weight_decay() const override { return {"wte.weight", "wpe.weight"}; }

  // As GPT-2: projections back into the residual stream are smaller.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (parameter.dim() < 2) return;
    const bool back = name.ends_with("attn.proj.weight") || name.ends_with("mlp.fc2.weight");
    fill.normal(back ? 0.02 / std::sqrt(2 * static_cast<double>(config_.depth)) : 0.02);
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "wpe.weight" || config_.positions != 0 || stored.dim() != 2) return {};
    const torch::Tensor moved = nn::fit_square_tokens(stored.unsqueeze(0), 0, rows_, columns_, config_.dim,
                                                      nn::Resample::bicubic_antialias);
    return moved.defined() ? moved.squeeze(0) : moved;
  }

  torch::Tensor cells_of(const torch::Tensor& images) const override {
    const int64_t side = config_.patch_size;
    tessera::check(
        images.dim() == 4 && images.size(1) == 3 && images.size(2) >= side && images.size(3) >= side,
        "images ", images.sizes(), " must be [batch, 3, height, width] of at least ", side, " x ", side,
        " pixels");
    const torch::Tensor cells = side == 1 ? images : torch::avg_pool2d(images, side);
    return cells.permute({0, 2, 3, 1});
  }
  torch::Tensor colours_of(const torch::Tensor& images) const override {
    // Half precision would confuse colours.
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
    return nearest_codes(cells_of(images), palette_).flatten(1);
  }

  Tokens sequence(const torch::Tensor& ids, int64_t rows, int64_t columns) const override {
    tessera::check(ids.dim() == 2 && ids.size(1) == rows * columns, "a sequence of ", ids.sizes(), " for ",
                   rows, " x ", columns, " pixels");
    Tokens tokens;
    tokens.x = torch::embedding(wte_->weight, ids) + positions_for(rows, columns);
    tokens.rows = rows, tokens.columns = columns;
    tokens.extras.causal = config_.causal;
    return tokens;
  }
  torch::Tensor embed_ids(const torch::Tensor& ids) const override {
    return torch::embedding(wte_->weight, ids).unsqueeze(1);
  }
  torch::Tensor embed_patches(const torch::Tensor& images) const override {
    return torch::embedding(wte_->weight, colours_of(images));
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const int64_t side = config_.patch_size;
    return sequence(colours_of(images), images.size(2) / side, images.size(3) / side);
  }

  std::string step_refusal() const override {
    return config_.causal ? "" : "model.causal = false sees pixels to come";
  }

 protected:
  int64_t sequence_length() const override {
    return config_.positions > 0 ? config_.positions : config_.cells();
  }
  torch::Tensor position_at(int64_t place) const override { return wpe_->weight.slice(0, place, place + 1); }

  torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t,
                           std::vector<torch::Tensor>& state) override {
    return blocks_[static_cast<size_t>(index)]->step(x, state);
  }
  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens, context);
  }
  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_(last); }
  torch::Tensor read(const torch::Tensor& last, const TokenPlaces&, const Context& context) override {
    return tap(context.taps, "tokens", norm_(last)).mean(1);
  }

 private:
  // Positions of the grid that the model was built for, interpolated to others.
  torch::Tensor positions_for(int64_t rows, int64_t columns) const {
    const int64_t count = rows_ * columns_;
    return nn::resample_tokens(wpe_->weight.slice(0, 0, count).unsqueeze(0), 0, rows_, columns_, rows,
                               columns, nn::Resample::bicubic_antialias);
  }

  Config config_;
  int64_t rows_, columns_;
  torch::Tensor palette_;
  bool palette_set_ = false;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<PixelBlock>> blocks_;
  nn::RmsNorm norm_{nullptr};
};

Value size(int64_t dim, int64_t depth, int64_t heads) {
  return table({{"dim", dim}, {"depth", depth}, {"heads", heads}});
}

}  // namespace

torch::Tensor even_palette(int64_t colours) {
  int64_t levels = 2;
  while (levels * levels * levels < colours) ++levels;
  torch::Tensor palette = torch::zeros({colours, 3});
  auto values = palette.accessor<float, 2>();
  for (int64_t i = 0; i < colours; ++i) {
    int64_t place = i * levels * levels * levels / colours;
    for (int64_t channel = 2; channel >= 0; --channel, place /= levels)
      values[i][channel] =
          static_cast<float>(2 * static_cast<double>(place % levels) / static_cast<double>(levels - 1) - 1);
  }
  return palette;
}

Family igpt::family() {
  const Value pixels = table({{"mean", Value::Array{0.5, 0.5, 0.5}},
                              {"std", Value::Array{0.5, 0.5, 0.5}},
                              {"crop", 1.0},
                              {"interpolation", "bilinear"}});
  return make_family<Igpt, Config>("igpt", "iGPT: GPT-2 on the colours of pixels",
                                   {
                                       {"igpt_small", {"imagegpt-small"}, size(512, 24, 8), pixels},
                                       {"igpt_medium", {"imagegpt-medium"}, size(1024, 36, 8), pixels},
                                       {"igpt_large", {"imagegpt-large"}, size(1536, 48, 16), pixels},
                                   });
}

}  // namespace tessera::models
