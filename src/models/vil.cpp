// Vision-LSTM 2 (Alkin et al. 2024, "Vision-LSTM: xLSTM as generic vision backbone"). Names of parameters are
// those of the published inference code.
//
//   x = patches W + positions
//   pair of blocks:  y = x + layer(norm(x))        top left to bottom right
//                    x' = y + flip(layer(norm(flip(y))))
//   layer:           proj_up, mLSTM mixer (ops/mlstm_mixer.h), proj_down
//   scores = head(legacy_norm([x_first, x_last] of norm(x)))
#include "core/error.h"
#include "models/family.h"
#include "models/isotropic.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/mlstm.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"

namespace tessera::models {
namespace {

struct Config {
  Value image_size = 224;
  int64_t patch_size = 16, stride = 0, classes = 1000, dim = 192, depth = 12, heads = 4;
  std::string mode = "classifier", pooling = "bilateral_flatten";
  bool legacy_norm = true;
  std::string conv_kind = "2d", conv_grid = "input";
  int64_t conv_kernel = 3;
  bool norm_bias = true, proj_bias = true;
  double drop_path = 0;
  bool drop_path_decay = false;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch in pixels");
    v("stride", stride, "step between patches in pixels, 0 = patch_size (no overlap)");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dim", dim, "width of a token");
    v("depth", depth, "pairs of blocks");
    v("heads", heads, "heads of the mLSTM cell");
    v("mode", mode, "classifier, or features: tokens (pooling none) or a map (to_image)");
    v("pooling", pooling,
      "bilateral_flatten (first and last token side by side), bilateral_avg, mean, none, to_image");
    v("legacy_norm", legacy_norm, "a second norm before the head, as in the published training");
    v("conv_kind", conv_kind, "depthwise convolution before q and k: 2d or causal1d");
    v("conv_grid", conv_grid,
      "rows of the 2d convolution: input (those of the image), or built (as the published "
      "code, those of image_size whatever the image)");
    v("conv_kernel", conv_kernel, "side of the convolution");
    v("norm_bias", norm_bias, "biases of the norms");
    v("proj_bias", proj_bias, "biases of the projections");
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first pair to drop_path at the last, else the same for all");
  }

  bool classifies() const { return mode == "classifier"; }
  int64_t read_width() const { return pooling == "bilateral_flatten" ? 2 * dim : dim; }

  void check() const {
    check_grid(image_size, patch_size);
    check_choice("mode", mode, {"classifier", "features"});
    check_choice("pooling", pooling,
                 classifies() ? std::vector<std::string>{"bilateral_flatten", "bilateral_avg", "mean"}
                              : std::vector<std::string>{"none", "to_image"});
    check_choice("conv_kind", conv_kind, {"2d", "causal1d"});
    check_choice("conv_grid", conv_grid, {"input", "built"});
    check_rate("drop_path", drop_path);
    if (stride < 0 || stride > patch_size)
      fail_usage("model.stride is ", stride, ", must be 0 to patch_size");
    if (dim < 2 || dim % 2 != 0 || depth < 1 || heads < 1 || 2 * dim % heads != 0)
      fail_usage("model.dim ", dim, " must be even, 2 * dim a multiple of model.heads ", heads,
                 ", and depth positive");
    if (classes < 0) fail_usage("model.classes is ", classes, ", must not be negative");
    if (conv_kernel < 1 || (conv_kind == "2d" && conv_kernel % 2 == 0))
      fail_usage("model.conv_kernel is ", conv_kernel, ", must be positive, and odd for the 2d convolution");
  }

  nn::MlstmLayerOptions layer() const {
    return {.width = dim,
            .heads = heads,
            .conv = conv_kind,
            .kernel = conv_kernel,
            .proj_bias = proj_bias,
            .norm_bias = norm_bias};
  }
};

class Block : public torch::nn::Module {
 public:
  Block(const Config& config, bool reverse, double drop_path, int64_t index)
      : reverse_(reverse), drop_path_(drop_path), index_(index) {
    norm_ = register_module("norm",
                            nn::LayerNorm(config.dim, nn::LayerNormOptions{1e-5, config.norm_bias, true}));
    layer_ = register_module("layer", nn::MlstmLayer(config.layer()));
  }

  torch::Tensor forward(const torch::Tensor& x, int64_t rows, int64_t columns, const Context& context) {
    return nn::residual(x, {}, drop_path_, is_training(), index_, context,
                        [&](const torch::Tensor& kept, const nn::Tail& tail) {
                          return layer_->forward(norm_(kept), rows, columns, reverse_, tail);
                        });
  }

  const nn::MlstmLayer& layer() const { return layer_; }

 private:
  bool reverse_;
  double drop_path_;
  int64_t index_;
  nn::LayerNorm norm_{nullptr};
  nn::MlstmLayer layer_{nullptr};
};

class Pair : public torch::nn::Module {
 public:
  Pair(const Config& config, double drop_path, int64_t index) {
    down_ = register_module("rowwise_from_top_left",
                            std::make_shared<Block>(config, false, drop_path, 2 * index));
    up_ = register_module("rowwise_from_bot_right",
                          std::make_shared<Block>(config, true, drop_path, 2 * index + 1));
  }

  torch::Tensor forward(const torch::Tensor& x, int64_t rows, int64_t columns, const Context& context) {
    return up_->forward(down_->forward(x, rows, columns, context), rows, columns, context);
  }

  const nn::MlstmLayer& layer() const { return down_->layer(); }

 private:
  std::shared_ptr<Block> down_, up_;
};

struct PositionTable : torch::nn::Module {
  torch::Tensor embed;  // [1, rows, columns, dim]
};

class Vil final : public IsotropicBackbone {
 public:
  explicit Vil(const Config& config) : config_(config) {
    const Extent image = extent_of(config.image_size, "image_size");
    rows_ = image.height / config.patch_size;
    columns_ = image.width / config.patch_size;
    patch_embed_ =
        register_module("patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.stride));
    pos_embed_ = register_module("pos_embed", std::make_shared<PositionTable>());
    pos_embed_->embed = pos_embed_->register_parameter("embed", nn::zeros({1, rows_, columns_, config.dim}));
    const std::vector<double> rates =
        nn::drop_path_rates(config.drop_path, config.depth, config.drop_path_decay);
    for (int64_t i = 0; i < config.depth; ++i) {
      pairs_.push_back(std::make_shared<Pair>(config, rates[static_cast<size_t>(i)], i));
      add_block(pairs_.back());
    }
    norm_ = register_module("norm",
                            nn::LayerNorm(config.dim, nn::LayerNormOptions{1e-6, config.norm_bias, true}));
    if (config.legacy_norm)
      legacy_norm_ = register_module(
          "legacy_norm", nn::LayerNorm(config.read_width(), nn::LayerNormOptions{1e-5, true, false}));
    if (config.classifies()) make_head(config.classes);
  }

  torch::Tensor forward(const torch::Tensor& images, const Context& context) override {
    if (config_.classifies()) return IsotropicBackbone::forward(images, context);
    const Tokens tokens = start(images, context);
    torch::Tensor x = norm_(run(tokens, context));
    if (legacy_norm_) x = legacy_norm_(x);
    return config_.pooling == "to_image" ? to_map(x, tokens) : x;
  }

  int64_t embed_width() const override { return config_.read_width(); }

  // Counted as the paper's appendix B.2: the chunkwise form, inside a chunk the two products over half the
  // matrix, and per chunk two products with the d x d state. Chunks of 49 tokens give every printed figure of
  // Tables 1 and 2.
  int64_t macs(int64_t height, int64_t width) const override {
    constexpr double chunk = 49;
    const int64_t tokens = patch_embed_->rows(height) * patch_embed_->rows(width);
    const nn::MlstmLayer& layer = pairs_[0]->layer();
    const auto inner = static_cast<double>(layer->inner());
    const double cell =
        static_cast<double>(tokens) * (2 * (chunk / 2 + 1) * inner + 2 / chunk * inner * inner);
    const int64_t one_layer = tokens * layer->macs_per_token() + static_cast<int64_t>(cell);
    return patch_embed_->macs(height, width) + 2 * config_.depth * one_layer + (head_ ? head_->macs() : 0);
  }

  void reset_head(int64_t classes) override {
    check(config_.classifies(), "a model in mode features has no head");
    IsotropicBackbone::reset_head(classes);
  }

  std::vector<std::string> no_weight_decay() const override { return {"pos_embed.embed"}; }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed.embed" || stored.dim() != 4 || stored.size(0) != 1 ||
        stored.size(3) != config_.dim)
      return {};
    return nn::resample_grid(stored[0], rows_, columns_, nn::Resample::bicubic).unsqueeze(0);
  }

 protected:
  Tokens start(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = patch_embed_(images);
    const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
    const torch::Tensor positions =
        nn::resample_grid(pos_embed_->embed[0], rows, columns, nn::Resample::bicubic);
    check(config_.conv_grid == "input" || config_.conv_kind != "2d" || rows * columns % rows_ == 0,
          "conv_grid = built: ", rows * columns, " tokens do not make ", rows_, " rows");
    return {.x = (patches + positions).reshape({batch, rows * columns, config_.dim}),
            .rows = rows,
            .columns = columns};
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    // The published code fixes the convolution's rows when the model is built.
    const int64_t rows = config_.conv_grid == "built" && config_.conv_kind == "2d" ? rows_ : tokens.rows;
    return pairs_[static_cast<size_t>(index)]->forward(x, rows, x.size(1) / rows, context);
  }

  torch::Tensor read(const torch::Tensor& last, const Tokens&, const Context&) override {
    const torch::Tensor x = norm_(last);
    torch::Tensor vector;
    if (config_.pooling == "bilateral_flatten")
      vector = torch::cat({x.select(1, 0), x.select(1, -1)}, 1);
    else if (config_.pooling == "bilateral_avg")
      vector = (x.select(1, 0) + x.select(1, -1)) / 2;
    else
      vector = x.mean(1);
    return legacy_norm_ ? legacy_norm_(vector) : vector;
  }

  void first_values(const std::string& name, const torch::Tensor&, const nn::Filler& fill) const override {
    if (name == "pos_embed.embed")
      fill.truncated_normal(0.02);
    else if (name == "patch_embed.proj.weight")
      fill.xavier_uniform();
    else if (name == "head.weight")
      fill.truncated_normal(2e-5);
    else if (const size_t layer = name.find(".layer."); layer != std::string::npos)
      nn::initialise_mlstm_layer(name.substr(layer + 7), fill, config_.layer());
  }

 private:
  Config config_;
  int64_t rows_ = 0, columns_ = 0;
  nn::PatchEmbed patch_embed_{nullptr};
  std::shared_ptr<PositionTable> pos_embed_;
  std::vector<std::shared_ptr<Pair>> pairs_;
  nn::LayerNorm norm_{nullptr}, legacy_norm_{nullptr};
};

// The published checkpoint files hold the names of the training source.
std::string rename(const std::string& published) {
  static const std::string stack = "xlstm.blocks.", layer = ".xlstm.", norm = ".xlstm_norm.";
  if (published.starts_with("post_blocks_norm.")) return "norm." + published.substr(17);
  if (published.starts_with("xlstm.post_blocks_norm.")) return "norm." + published.substr(23);
  if (published.starts_with("head.0.")) return "legacy_norm." + published.substr(7);
  if (published.starts_with("head.1.")) return "head." + published.substr(7);
  std::string name = published;
  if (name.starts_with(stack)) name = name.substr(6);
  if (!name.starts_with("blocks.")) return published;
  const size_t dot = name.find('.', 7);
  const auto number = parse_int(std::string_view(name).substr(7, dot == std::string::npos ? 0 : dot - 7));
  if (!number) return published;
  std::string rest = name.substr(dot);
  const bool theirs = rest.starts_with(layer) || rest.starts_with(norm);
  if (!theirs) return published;
  if (rest.starts_with(layer))
    rest = ".layer." + rest.substr(layer.size());
  else
    rest = ".norm." + rest.substr(norm.size());
  if (const size_t conv = rest.find(".conv1d."); conv != std::string::npos) rest.replace(conv, 8, ".conv.");
  const char* direction = *number % 2 == 0 ? ".rowwise_from_top_left" : ".rowwise_from_bot_right";
  return "blocks." + std::to_string(*number / 2) + direction + rest;
}

}  // namespace

Family vil_family() {
  return make_family<Vil, Config>(
      "vil", "Vision-LSTM 2",
      {
          {"vil_tiny_patch16_224", {"vil2-tiny", "vil2-tiny-e400"}, table({{"dim", 192}})},
          {"vil_small_patch16_224", {"vil2-small"}, table({{"dim", 384}})},
          {"vil_base_patch16_224", {"vil2-base"}, table({{"dim", 768}})},
      },
      rename);
}

}  // namespace tessera::models
