// DiT (Peebles & Xie 2023, "Scalable diffusion models with transformers"), SiT (Ma et al. 2024), and both
// with VisionLLaMA's blocks (Chu et al. 2024, sections 4.1 and A.1). Parameters have the names of the
// published code.
//
//   c  = mlp([cos(t f), sin(t f)]) + table[label]
//   shift1, scale1, gate1, shift2, scale2, gate2 = silu(c) W + b       adaLN-Zero: W and b start at zero
//   y  = x + gate1 * attention(norm(x) (1 + scale1) + shift1)
//   x' = y + gate2 * mlp(norm(y) (1 + scale2) + shift2)
//   output = patches of (norm(x_L) (1 + scale) + shift) W + b, back on the grid
// The norms have no weights. DiT and SiT add sine-cosine positions; the LLaMA forms rotate q and k by 2-D
// RoPE and have SwiGLU. SiT's networks are DiT's: the published ones compute a second half of channels and
// drop it.

#include "core/error.h"
#include "models/base/denoiser.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"

namespace tessera::models::dit {
namespace {

enum class Sigma { none, learned, dropped };

}  // namespace
}  // namespace tessera::models::dit

template <>
struct tessera::EnumNames<tessera::models::dit::Sigma> {
  static constexpr std::array names = {"none", "learned", "dropped"};
};

namespace tessera::models::dit {
namespace {

constexpr double kEps = 1e-6;
constexpr int64_t kFrequencies = 128;  // frequencies of the time embedding
constexpr double kLongestWave = 10000;

struct Config : IsotropicSettings {
  int64_t channels = 4, labels = 1000;
  bool llama = false, null_label = true;
  double mlp_ratio = 4, rope_theta = 10000;
  Sigma sigma = Sigma::learned;

  Config() { image_size = 32, patch_size = 2, dim = 384, heads = 6; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("channels", channels, between(1, 4096), "channels of the input: 3 of pixels, 4 of latents");
    v("labels", labels, between(1, 1 << 24), "classes of the images");
    v("null_label", null_label, "an additional embedding for no class, for guidance");
    v("llama", llama, "VisionLLaMA's block: 2-D RoPE and SwiGLU");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of dim; not for llama");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    v("sigma", sigma, choice<Sigma>(),
      "learned: a variance for each channel of the output; dropped: computed and left out (published SiT)");
    visit_drop_path(v);
  }

  int64_t out_channels() const {
    return sigma == Sigma::none ? channels : 2 * channels;
  }  // channels of the last layer's output

  void check() const {
    check_size();
    if (llama && dim / heads % 4 != 0)
      fail_usage("model.llama rotates ", dim / heads, " channels a head, must be a multiple of 4");
    if (dim % 4 != 0) fail_usage("model.dim = ", dim, ", must be a multiple of 4 for sine-cosine positions");
    check_tokens(grid().height * patch_size, grid().width * patch_size, 2 * channels);
  }
};

torch::Tensor norm_without_weights(const torch::Tensor& x) {
  return at::layer_norm(x, {x.size(-1)}, {}, {}, kEps);
}

// Returns norm(x) (1 + scale) + shift for the next linear layer; x [batch, tokens, dim], shift and scale
// [batch, dim].
nn::DeferredNorm modulated(const torch::Tensor& x, const torch::Tensor& shift, const torch::Tensor& scale) {
  return {x, {.weight = 1 + scale, .bias = shift, .eps = kEps}};
}

// A linear layer after SiLU, parameters 1.weight and 1.bias.
class Modulation final : public torch::nn::Module {
 public:
  Modulation(int64_t dim, int64_t count) : count_(count) {
    linear_ = register_module("1", nn::Linear(dim, count * dim));
  }
  // Maps the condition [batch, dim] to `count` tensors [batch, dim]. They keep the parameters' type under
  // autocast, since half precision would lose bits of 1 + scale.
  std::vector<torch::Tensor> forward(const torch::Tensor& condition) {
    return linear_(torch::silu(condition)).to(linear_->bias.scalar_type()).chunk(count_, -1);
  }
  int64_t macs() const { return linear_->macs(); }

 private:
  int64_t count_;
  nn::Linear linear_{nullptr};
};

class Block final : public torch::nn::Module {
 public:
  Block(const Config& config, int64_t index, double drop_path) : index_(index), drop_path_(drop_path) {
    attn_ = register_module("attn", nn::Attention(config.dim, config.heads));
    if (config.llama)
      swiglu_ =
          register_module("mlp", nn::SwiGlu(config.dim, nn::llama_hidden(config.dim), nn::kVisionLlamaNames));
    else
      gelu_ = register_module(
          "mlp", nn::AnyMlp(nn::MlpForm::gelu_tanh, config.dim,
                            static_cast<int64_t>(static_cast<double>(config.dim) * config.mlp_ratio)));
    modulation_ = register_module("adaLN_modulation", std::make_shared<Modulation>(config.dim, 6));
  }

  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& shared, const Context& context) {
    nn::AttentionExtras extras = shared;
    extras.taps = context.taps;
    extras.name = "blocks." + std::to_string(index_);
    const std::vector<torch::Tensor> m = modulation_->forward(context.condition);
    const torch::Tensor y =
        add(x, m, 0, context,
            [&](const nn::DeferredNorm& in, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
              return attn_->forward(in, nn::of_samples(extras, samples), epilogue);
            });
    return add(y, m, 3, context,
               [&](const nn::DeferredNorm& in, const nn::Epilogue& epilogue, const torch::Tensor&) {
                 return swiglu_ ? swiglu_->forward(in, epilogue) : gelu_->forward(in, epilogue);
               });
  }

  int64_t macs(int64_t tokens) const {
    return attn_->macs(tokens) + tokens * (swiglu_ ? swiglu_->macs() : gelu_->macs()) + modulation_->macs();
  }

 private:
  // Returns x + gate * branch(norm(x) (1 + scale) + shift), with the three at `first` of the modulation.
  template <class Branch>
  torch::Tensor add(const torch::Tensor& x, const std::vector<torch::Tensor>& modulation, size_t first,
                    const Context& context, const Branch& branch) {
    return nn::residual(
        x, {}, drop_path_, is_training(), 2 * index_ + (first > 0 ? 1 : 0), context,
        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
          const auto of = [&](size_t which) {
            const torch::Tensor& all = modulation[first + which];
            return samples.defined() ? all.index_select(0, samples) : all;
          };
          return branch(modulated(kept, of(0), of(1)), {of(2), epilogue.residual}, samples);
        });
  }

  int64_t index_;
  double drop_path_;
  nn::Attention attn_{nullptr};
  nn::AnyMlp gelu_{nullptr};
  nn::SwiGlu swiglu_{nullptr};
  std::shared_ptr<Modulation> modulation_;
};

// Parameters mlp.0 and mlp.2, applied to sines and cosines of the time.
class TimeEmbedder final : public torch::nn::Module {
 public:
  explicit TimeEmbedder(int64_t dim) {
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
    first_ = mlp->register_module("0", nn::Linear(2 * kFrequencies, dim));
    second_ = mlp->register_module("2", nn::Linear(dim, dim));
  }
  // Maps time [batch] to [batch, dim].
  torch::Tensor forward(const torch::Tensor& time) {
    const torch::Tensor steps =
        torch::arange(kFrequencies, torch::TensorOptions().dtype(torch::kFloat64).device(time.device()));
    const torch::Tensor frequencies =
        torch::exp(steps * (-std::log(kLongestWave) / static_cast<double>(kFrequencies)));
    const torch::Tensor angles = time.to(torch::kFloat64).unsqueeze(1) * frequencies;
    const torch::Tensor waves = torch::cat({angles.cos(), angles.sin()}, 1).to(first_->bias.scalar_type());
    return second_(torch::silu(first_(waves)));
  }
  int64_t macs() const { return first_->macs() + second_->macs(); }

 private:
  nn::Linear first_{nullptr}, second_{nullptr};
};

class Dit final : public IsotropicBackbone, public Denoiser {
 public:
  explicit Dit(const Config& config) : config_(config) {
    const Extent grid = config.grid();
    rows_ = grid.height, columns_ = grid.width;
    pos_embed_ = register_parameter("pos_embed", fixed_positions(), /*requires_grad=*/false);
    patches_ = register_module(
        "x_embedder", nn::PatchEmbed(config.patch_size, config.dim, 0, /*with_bias=*/true, config.channels));
    time_ = register_module("t_embedder", std::make_shared<TimeEmbedder>(config.dim));
    const auto labels = register_module("y_embedder", std::make_shared<torch::nn::Module>());
    const auto table = labels->register_module("embedding_table", std::make_shared<torch::nn::Module>());
    label_table_ = table->register_parameter(
        "weight", nn::zeros({config.labels + (config.null_label ? 1 : 0), config.dim}));
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<Block>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    const auto last = register_module("final_layer", std::make_shared<torch::nn::Module>());
    last_linear_ = last->register_module(
        "linear", nn::Linear(config.dim, config.patch_size * config.patch_size * config.out_channels()));
    last_modulation_ = last->register_module("adaLN_modulation", std::make_shared<Modulation>(config.dim, 2));
  }

  // --- generation

  torch::Tensor denoise(const torch::Tensor& x, const torch::Tensor& time, const torch::Tensor& labels,
                        const Context& context, BlockReuse* reuse) override {
    check(time.dim() == 1 && time.size(0) == x.size(0) && labels.dim() == 1 && labels.size(0) == x.size(0) &&
              labels.scalar_type() == torch::kInt64,
          "times ", time.sizes(), " and labels ", labels.sizes(), " must be one a sample of ", x.size(0));
    const Tokens tokens = tokenise(x, context);
    Context conditioned = context;
    conditioned.condition = condition(time, labels);
    const bool reuses = reuse && reuse->every > 1;
    const torch::Tensor last = reuses ? run_reusing(tokens, conditioned, *reuse) : run(tokens, conditioned);
    const torch::Tensor out = output(last, conditioned.condition, tokens);
    return config_.sigma == Sigma::dropped ? out.slice(1, 0, config_.channels) : out;
  }
  int64_t channels() const override { return config_.channels; }
  int64_t output_channels() const override {
    return config_.sigma == Sigma::learned ? 2 * config_.channels : config_.channels;
  }
  int64_t label_count() const override { return config_.labels; }
  bool has_null_label() const override { return config_.null_label; }

  // --- a backbone

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t condition_width() const override { return config_.dim; }
  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width);
    int64_t total = patches_->macs(height, width) + time_->macs() + last_modulation_->macs() +
                    tokens * last_linear_->macs();
    for (const auto& block : blocks_) total += block->macs(tokens);
    return total;
  }
  std::vector<std::string> no_weight_decay() const override { return {"pos_embed"}; }
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed") return {};
    return nn::fit_square_tokens(stored, 0, rows_, columns_, config_.dim, nn::Resample::bicubic);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = patches_(images);
    Tokens tokens;
    tokens.rows = patches.size(1), tokens.columns = patches.size(2);
    tokens.x = patches.reshape({patches.size(0), tokens.rows * tokens.columns, config_.dim});
    if (config_.llama) {
      const nn::GridPositions at = nn::grid_positions(0, tokens.rows * tokens.columns, tokens.columns);
      tokens.extras.rotation = nn::rotation_2d(at.x, at.y, config_.dim / config_.heads, config_.rope_theta);
    } else {
      tokens.x = tokens.x + nn::resample_tokens(pos_embed_, 0, rows_, columns_, tokens.rows, tokens.columns,
                                                nn::Resample::bicubic);
    }
    return tokens;
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name.starts_with("final_layer.") || name.find("adaLN_modulation") != std::string::npos) return;
    if (name == "y_embedder.embedding_table.weight" || name.starts_with("t_embedder.mlp.")) {
      if (parameter.dim() == 2) fill.normal(0.02);
    } else if (name == "head.weight") {
      fill.truncated_normal(0.02);
    } else if (name != "pos_embed" && parameter.dim() > 1) {
      fill.xavier_uniform();
    }
  }

 protected:
  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens.extras, context);
  }
  // Without a condition, the image counts as clean and without a class, or as the first class if the model
  // requires one.
  torch::Tensor usual_condition(const torch::Tensor& like) override {
    const auto options = torch::TensorOptions().device(like.device());
    return condition(
        torch::zeros({like.size(0)}, options),
        torch::full({like.size(0)}, config_.null_label ? null_label() : 0, options.dtype(torch::kInt64)));
  }
  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_without_weights(last); }
  torch::Tensor read(const torch::Tensor& last, const TokenPlaces&, const Context&) override {
    return norm_without_weights(last).mean(1);
  }

 private:
  // Runs the blocks. A span reuses its last addend if that is recent enough and has the same shape.
  torch::Tensor run_reusing(const Tokens& tokens, const Context& context, BlockReuse& reuse) {
    check(0 <= reuse.first && reuse.first < reuse.last && reuse.last <= block_count() && !is_training() &&
              !context.taps,
          "blocks ", reuse.first, " to ", reuse.last, " that are reused must be among the model's ",
          block_count(), ", in inference without taps");
    const auto run_span = [&](torch::Tensor x, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) x = run_block(i, x, tokens, context);
      return x;
    };
    const torch::Tensor x = run_span(tokens.x, 0, reuse.first);
    reuse.asked += block_count();
    torch::Tensor behind;  // the span
    if (reuse.age + 1 < reuse.every && reuse.added.defined() && reuse.added.sizes() == x.sizes()) {
      behind = x + reuse.added;
      ++reuse.age;
      reuse.spared += reuse.last - reuse.first;
    } else {
      behind = run_span(x, reuse.first, reuse.last);
      reuse.added = behind - x;
      reuse.age = 0;
    }
    return run_span(behind, reuse.last, block_count());
  }

  torch::Tensor condition(const torch::Tensor& time, const torch::Tensor& labels) {
    return time_->forward(time) + torch::embedding(label_table_, labels);
  }

  // Maps tokens [batch, rows * columns, dim] to [batch, channels, height, width].
  torch::Tensor output(const torch::Tensor& last, const torch::Tensor& condition, const Tokens& tokens) {
    const std::vector<torch::Tensor> m = last_modulation_->forward(condition);
    const int64_t patch = config_.patch_size, channels = config_.out_channels();
    return last_linear_(modulated(last, m[0], m[1]))
        .view({last.size(0), tokens.rows, tokens.columns, patch, patch, channels})
        .permute({0, 5, 1, 3, 2, 4})
        .reshape({last.size(0), channels, tokens.rows * patch, tokens.columns * patch});
  }

  torch::Tensor fixed_positions() const {
    if (nn::ShapesOnly::active()) return nn::zeros({1, rows_ * columns_, config_.dim});
    return nn::sincos_2d(rows_, columns_, config_.dim).unsqueeze(0);
  }

  Config config_;
  int64_t rows_ = 0, columns_ = 0;
  torch::Tensor pos_embed_, label_table_;
  nn::PatchEmbed patches_{nullptr};
  std::shared_ptr<TimeEmbedder> time_;
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::Linear last_linear_{nullptr};
  std::shared_ptr<Modulation> last_modulation_;
};

struct Scale {
  const char* letters;
  int64_t dim, depth, heads;
};
constexpr Scale kScales[] = {
    {"S", 384, 12, 6}, {"B", 768, 12, 12}, {"L", 1024, 24, 16}, {"XL", 1152, 28, 16}};

// 256 x 256 pixels as latents of 32 x 32 (Peebles & Xie 2023, Table 1; VisionLLaMA, Table 18).
std::vector<Size> published_sizes() {
  struct Form {
    const char *ours, *published, *size_mark, *patch_mark;
    bool llama;
    const char* sigma;
  };
  static constexpr Form forms[] = {{"dit", "DiT", "-", "/", false, "learned"},
                                   {"dit_llama", "DiTLLaMA", "_", "_", true, "learned"},
                                   {"sit", "SiT", "-", "/", false, "dropped"},
                                   {"sit_llama", "SiTLLaMA", "_", "_", true, "dropped"}};
  std::vector<Size> sizes;
  for (const Form& form : forms)
    for (const Scale& scale : kScales)
      for (const int64_t patch : {2, 4, 8}) {
        std::string small = scale.letters;
        for (char& letter : small) letter = static_cast<char>(letter - 'A' + 'a');
        sizes.push_back({text(form.ours, "_", small, "_patch", patch),
                         {text(form.published, form.size_mark, scale.letters, form.patch_mark, patch)},
                         table({{"image_size", 32},
                                {"patch_size", patch},
                                {"classes", 0},
                                {"dim", scale.dim},
                                {"depth", scale.depth},
                                {"heads", scale.heads},
                                {"llama", form.llama},
                                {"sigma", form.sigma}})});
      }
  return sizes;
}

}  // namespace

Family family() {
  Family family = make_family<Dit, Config>(
      "dit", "DiT and SiT, also with VisionLLaMA's blocks: image generation", published_sizes());
  // Pixels between -1 and 1, centre crop over the full short side (Dhariwal & Nichol 2021).
  family.preprocess =
      table({{"crop", 1.0}, {"mean", Value::Array{0.5, 0.5, 0.5}}, {"std", Value::Array{0.5, 0.5, 0.5}}});
  return family;
}

}  // namespace tessera::models::dit
