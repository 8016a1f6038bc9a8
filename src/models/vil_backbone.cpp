#include <algorithm>

#include "core/error.h"
#include "models/vil.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/norm.h"
#include "nn/position.h"

namespace tessera::models {
namespace {

// Tokens in a chunk of the mLSTM that give every printed figure of the paper's Tables 1 and 2.
constexpr double kChunk = 49;

// A residual-scaled norm of the blocks, or an RMS norm.
Norm register_scaled_norm(torch::nn::Module& owner, const char* name, const VilConfig& config, double eps) {
  Norm norm;
  if (config.norm == "rms")
    norm.rms = owner.register_module(name, nn::RmsNorm(config.dim, eps));
  else
    norm.layer = owner.register_module(
        name, nn::LayerNorm(config.dim, nn::LayerNormOptions{eps, config.norm_bias, /*residual=*/true}));
  return norm;
}

// norm and layer, one direction or several inside the layer.
class Block final : public VilUnit {
 public:
  Block(const VilConfig& config, const nn::MlstmLayerOptions& layer, double drop_path, int64_t index,
        std::string name)
      : drop_path_(drop_path), index_(index), name_(std::move(name)) {
    norm_ = register_scaled_norm(*this, "norm", config, 1e-5);
    layer_ = register_module("layer", nn::MlstmLayer(layer));
  }

  torch::Tensor branch(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context,
                       const nn::Tail& tail) {
    return layer_->forward(norm_.before_linear(x), grid, tail, context.taps, name_);
  }

  torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) override {
    return nn::residual(
        x, {}, drop_path_, is_training(), index_, context,
        [&](const torch::Tensor& kept, const nn::Tail& tail) { return branch(kept, grid, context, tail); });
  }

  std::vector<nn::MlstmLayer> layers() const override { return {layer_}; }

 private:
  double drop_path_;
  int64_t index_;
  std::string name_;  // before the names of taps
  Norm norm_;
  nn::MlstmLayer layer_{nullptr};
};

// Blocks named after their directions, one after the other or side by side.
class Group final : public VilUnit {
 public:
  Group(const std::vector<std::pair<std::string, std::shared_ptr<Block>>>& blocks, bool parallel,
        double drop_path, int64_t index)
      : parallel_(parallel), drop_path_(drop_path), index_(index) {
    for (const auto& [name, block] : blocks) blocks_.push_back(register_module(name, block));
  }

  torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) override {
    if (parallel_)
      return nn::residual(x, {}, drop_path_, is_training(), index_, context,
                          [&](const torch::Tensor& kept, const nn::Tail& tail) {
                            torch::Tensor sum = blocks_[0]->branch(kept, grid, context, tail);
                            for (size_t i = 1; i < blocks_.size(); ++i)
                              sum = blocks_[i]->branch(kept, grid, context, {.residual = sum});
                            return sum;
                          });
    torch::Tensor y = x;
    for (const auto& block : blocks_) y = block->forward(y, grid, context);
    return y;
  }

  std::vector<nn::MlstmLayer> layers() const override {
    std::vector<nn::MlstmLayer> all;
    for (const auto& block : blocks_) all.push_back(block->layers()[0]);
    return all;
  }

 private:
  bool parallel_;
  double drop_path_;
  int64_t index_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

torch::Tensor index_of(const std::vector<int64_t>& places, const torch::Tensor& x) {
  return torch::tensor(places, torch::kInt64).to(x.device());
}

// Rows or columns in the middle: one for an odd number, two for an even one.
std::vector<int64_t> middle(int64_t size) {
  return size % 2 == 1 ? std::vector<int64_t>{size / 2} : std::vector<int64_t>{size / 2 - 1, size / 2};
}

}  // namespace

int64_t VilConfig::direction_count() const {
  return directions == "uni" ? 1 : directions == "bi" ? 2 : directions == "quad" ? 4 : 8;
}

std::vector<int64_t> VilConfig::class_places(int64_t patches) const {
  if (pooling == "cls_first") return {0};
  if (pooling == "cls_last") return {patches};
  if (pooling == "cls_bilateral") return {0, patches + 1};
  if (pooling == "cls_middle") return {patches / 2};
  if (pooling == "cls_middle_bilateral") return {0, patches / 2 + 1, patches + 2};
  return {};
}

int64_t VilConfig::read_width() const {
  const int64_t class_tokens = static_cast<int64_t>(class_places(1).size());
  return dim * (pooling == "bilateral_flatten" ? 2 : std::max<int64_t>(class_tokens, 1));
}

void VilConfig::check() const {
  check_grid(image_size, patch_size);
  check_choice("mode", mode, {"classifier", "features"});
  check_choice("pooling", pooling,
               classifies() ? std::vector<std::string>{"bilateral_flatten", "bilateral_avg", "mean",
                                                       "center_mean", "middle", "cls_first", "cls_last",
                                                       "cls_bilateral", "cls_middle", "cls_middle_bilateral"}
                            : std::vector<std::string>{"none", "to_image"});
  check_choice("directions", directions, {"uni", "bi", "quad", "oct"});
  check_choice("traversal", traversal, {"alternating", "parallel", "in_layer"});
  check_choice("norm", norm, {"layer", "rms"});
  check_choice("norm_eps", norm_eps, {"published", "training"});
  check_choice("cell", cell, {"published", "paper"});
  check_choice("conv_kind", conv_kind, {"2d", "conv1d", "causal1d", "none"});
  check_choice("conv_grid", conv_grid, {"input", "built"});
  check_rate("drop_path", drop_path);
  if (stride < 0 || stride > patch_size) fail_usage("model.stride is ", stride, ", must be 0 to patch_size");
  if (dim < 2 || dim % 2 != 0 || depth < 1 || heads < 1 || inner_multiple < 1 ||
      (2 * dim + inner_multiple - 1) / inner_multiple * inner_multiple % heads != 0)
    fail_usage("model.dim ", dim, " must be even, 2 * dim a multiple of model.heads ", heads,
               ", and depth and inner_multiple positive");
  if (classes < 0) fail_usage("model.classes is ", classes, ", must not be negative");
  const bool odd = conv_kind == "2d" || conv_kind == "conv1d";
  if (conv_kernel < 1 || (odd && conv_kernel % 2 == 0))
    fail_usage("model.conv_kernel is ", conv_kernel,
               ", must be positive, and odd for the convolutions that see both sides");
  if (traversal == "parallel" && directions == "uni")
    fail_usage("model.traversal = \"parallel\" needs more than one direction");
  if (share_directions && (traversal != "in_layer" || directions == "uni"))
    fail_usage("model.share_directions goes with traversal in_layer and more than one direction");
  if (conv_kind == "none" && (!share_conv || value_conv))
    fail_usage("model.conv_kind = \"none\" leaves nothing for share_conv = false and value_conv");
  if (init_values < 0) fail_usage("model.init_values is ", init_values, ", must not be negative");
  if (conv_grid == "built" && direction_count() > 2)
    fail_usage("model.conv_grid = \"built\" goes with directions uni or bi: columns need the image's grid");
}

VilBackbone::VilBackbone(const VilConfig& config, const VilVersion& version)
    : config_(config), conv_name_(version.conv_name) {
  rows_ = config.grid().height;
  columns_ = config.grid().width;
  patch_embed_ = register_module("patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.stride));
  if (config.positions) {
    pos_embed_ = register_module("pos_embed", std::make_shared<PositionTable>());
    pos_embed_->embed = pos_embed_->register_parameter("embed", nn::zeros({1, rows_, columns_, config.dim}));
  }
  if (const auto places = config.class_places(rows_ * columns_); !places.empty())
    cls_tokens_ =
        register_parameter("cls_tokens", nn::zeros({1, static_cast<int64_t>(places.size()), config.dim}));
  make_blocks(version);
  make_norms(version);
  if (config.classifies()) make_head(config.classes);
}

nn::MlstmLayerOptions VilBackbone::layer_options() const {
  const int64_t multiple = config_.inner_multiple;
  return {.width = config_.dim,
          .inner = (2 * config_.dim + multiple - 1) / multiple * multiple,
          .heads = config_.heads,
          .conv = config_.conv_kind,
          .conv_name = conv_name_,
          .kernel = config_.conv_kernel,
          .proj_bias = config_.proj_bias,
          .norm_bias = config_.norm_bias,
          .conv_bias = config_.conv_bias,
          .skip = config_.skip,
          .paper_cell = config_.cell == "paper",
          .share_conv = config_.share_conv,
          .value_conv = config_.value_conv,
          .share_directions = config_.share_directions,
          .init_values = config_.init_values};
}

void VilBackbone::make_blocks(const VilVersion& version) {
  const std::vector<nn::Traversal> ways = nn::traversals(config_.direction_count());
  const std::vector<double> rates = config_.drop_path_rates(config_.depth);
  int64_t made = 0;
  for (int64_t i = 0; i < config_.depth; ++i) {
    const double rate = rates[static_cast<size_t>(i)];
    nn::MlstmLayerOptions layer = layer_options();
    const std::string name = "blocks." + std::to_string(i);
    const auto block = [&](const nn::Traversal& way, const std::string& inside = "") {
      layer.directions = {way};
      return std::make_shared<Block>(config_, layer, rate, made++, name + inside);
    };
    const auto next_way = [&] { return ways[static_cast<size_t>(made) % ways.size()]; };
    std::vector<std::pair<std::string, std::shared_ptr<Block>>> named;
    if (config_.traversal == "in_layer") {
      layer.directions = ways;
      units_.push_back(std::make_shared<Block>(config_, layer, rate, made++, name));
    } else if (config_.traversal == "parallel") {
      for (const nn::Traversal& way : ways) named.emplace_back(way.name(), block(way, "." + way.name()));
      units_.push_back(std::make_shared<Group>(named, true, rate, i));
    } else if (version.pairs) {
      for (int64_t half = 0; half < 2; ++half) {
        const nn::Traversal way = next_way();
        // Two blocks of one direction need two names.
        const std::string inside = way.name() + (ways.size() == 1 && half == 1 ? "_again" : "");
        named.emplace_back(inside, block(way, "." + inside));
      }
      units_.push_back(std::make_shared<Group>(named, false, rate, i));
    } else {
      units_.push_back(block(next_way()));
    }
    add_block(units_.back());
  }
}

void VilBackbone::make_norms(const VilVersion& version) {
  const bool training = config_.norm_eps == "training";
  const double token_eps = training ? 1e-5 : version.token_eps, read_eps = training ? 1e-6 : version.read_eps;
  if (!version.token_norm_is_legacy || config_.legacy_norm)
    token_norm_ = register_scaled_norm(*this, version.token_norm, config_, token_eps);
  if (version.token_norm_is_legacy || config_.legacy_norm)
    read_norm_ = register_norm(*this, version.read_norm, config_.norm, config_.read_width(), read_eps);
}

torch::Tensor VilBackbone::forward(const torch::Tensor& images, const Context& context) {
  if (config_.classifies()) return IsotropicBackbone::forward(images, context);
  const Tokens tokens = start(images, context);
  torch::Tensor x = run(tokens, context);
  if (token_norm_) x = token_norm_(x);
  if (read_norm_) x = read_norm_(x);
  return config_.pooling == "to_image" ? to_map(x, tokens) : x;
}

torch::Tensor VilBackbone::run_stack(const torch::Tensor& x, int64_t rows, int64_t columns) {
  const torch::Tensor last = run({.x = x, .rows = rows, .columns = columns}, {});
  return token_norm_ ? token_norm_(last) : last;
}

VilBackbone::Tokens VilBackbone::start(const torch::Tensor& images, const Context&) {
  const torch::Tensor patches = patch_embed_(images);
  const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
  const int64_t count = rows * columns;
  check(config_.conv_grid == "input" || config_.conv_kind != "2d" || count % rows_ == 0,
        "conv_grid = built: ", count, " tokens do not make ", rows_, " rows");
  torch::Tensor x = patches;
  if (pos_embed_) x = x + nn::resample_grid(pos_embed_->embed[0], rows, columns, nn::Resample::bicubic);
  x = x.reshape({batch, count, config_.dim});
  const std::vector<int64_t> places = config_.class_places(count);
  std::vector<torch::Tensor> pieces;
  int64_t taken = 0;  // patches so far
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t before = places[i] - static_cast<int64_t>(i);
    pieces.push_back(x.slice(1, taken, before));
    pieces.push_back(cls_tokens_.select(1, static_cast<int64_t>(i)).unsqueeze(1).expand({batch, 1, -1}));
    taken = before;
  }
  if (!pieces.empty()) {
    pieces.push_back(x.slice(1, taken));
    x = torch::cat(pieces, 1);
  }
  return {.x = x, .rows = rows, .columns = columns};
}

nn::TokenGrid VilBackbone::grid_of(const Tokens& tokens) const {
  const int64_t patches = tokens.rows * tokens.columns;
  // The published code fixes the convolution's rows when the model is built.
  const int64_t rows = config_.conv_grid == "built" && config_.conv_kind == "2d" ? rows_ : tokens.rows;
  return {rows, patches / rows, config_.class_places(patches)};
}

torch::Tensor VilBackbone::run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                                     const Context& context) {
  return units_[static_cast<size_t>(index)]->forward(x, grid_of(tokens), context);
}

torch::Tensor VilBackbone::read(const torch::Tensor& last, const Tokens& tokens, const Context&) {
  const torch::Tensor x = token_norm_ ? token_norm_(last) : last;
  const int64_t patches = tokens.rows * tokens.columns;
  const std::vector<int64_t> places = config_.class_places(patches);
  torch::Tensor vector;
  if (!places.empty()) {
    vector = x.index_select(1, index_of(places, x)).flatten(1);
  } else if (config_.pooling == "bilateral_flatten") {
    vector = torch::cat({x.select(1, 0), x.select(1, -1)}, 1);
  } else if (config_.pooling == "bilateral_avg") {
    vector = (x.select(1, 0) + x.select(1, -1)) / 2;
  } else if (config_.pooling == "middle") {
    vector = x.select(1, patches / 2);
  } else if (config_.pooling == "center_mean") {
    std::vector<int64_t> center;
    for (const int64_t row : middle(tokens.rows))
      for (const int64_t column : middle(tokens.columns)) center.push_back(row * tokens.columns + column);
    vector = x.index_select(1, index_of(center, x)).mean(1);
  } else {
    vector = x.mean(1);
  }
  return read_norm_ ? read_norm_(vector) : vector;
}

torch::Tensor VilBackbone::to_map(const torch::Tensor& x, const Tokens& tokens) const {
  const std::vector<int64_t> places = config_.class_places(tokens.rows * tokens.columns);
  if (places.empty()) return IsotropicBackbone::to_map(x, tokens);
  std::vector<int64_t> on_grid;
  for (int64_t i = 0; i < x.size(1); ++i)
    if (!std::binary_search(places.begin(), places.end(), i)) on_grid.push_back(i);
  return IsotropicBackbone::to_map(x.index_select(1, index_of(on_grid, x)), tokens);
}

int64_t VilBackbone::count_macs(int64_t height, int64_t width,
                                const std::function<double(double tokens)>& cell) const {
  const int64_t patches = patch_embed_->rows(height) * patch_embed_->rows(width);
  const int64_t tokens = patches + static_cast<int64_t>(config_.class_places(patches).size());
  int64_t total = patch_embed_->macs(height, width) + (head_ ? head_->macs() : 0);
  for (const auto& unit : units_)
    for (const nn::MlstmLayer& layer : unit->layers()) {
      const auto directions = static_cast<double>(layer->options().directions.size());
      total += tokens * layer->macs_per_token() +
               static_cast<int64_t>(directions * cell(static_cast<double>(tokens)));
    }
  return total;
}

// Counted as the paper's appendix B.2: the chunkwise form, inside a chunk the two products over half the
// matrix, and per chunk two products with a d x d state.
int64_t VilBackbone::macs(int64_t height, int64_t width) const {
  const auto inner = static_cast<double>(layer_options().inner);
  return count_macs(height, width, [inner](double tokens) {
    return tokens * (2 * (kChunk / 2 + 1) * inner + 2 / kChunk * inner * inner);
  });
}

// Every product of the same chunks: inside a chunk scores, their sums' values; each token reads the state of
// its head before the chunk and is written into it, but for the first chunk and the last.
int64_t VilBackbone::exact_macs(int64_t height, int64_t width) const {
  const nn::MlstmLayerOptions options = layer_options();
  const auto heads = static_cast<double>(options.heads), d = static_cast<double>(options.inner) / heads;
  return count_macs(height, width, [heads, d](double tokens) {
    double total = 0;
    for (double first = 0; first < tokens; first += kChunk) {
      const double own = std::min(kChunk, tokens - first);
      const double reads = first > 0 ? 1 : 0, writes = first + own < tokens ? 1 : 0;
      total += own * (own + 1) * d + (reads + writes) * own * (d * d + d);
    }
    return heads * total;
  });
}

void VilBackbone::reset_head(int64_t classes) {
  check(config_.classifies(), "a model in mode features has no head");
  IsotropicBackbone::reset_head(classes);
}

torch::Tensor VilBackbone::fit(const std::string& name, const torch::Tensor& stored) const {
  if (name != "pos_embed.embed" || !pos_embed_ || stored.dim() != 4 || stored.size(0) != 1 ||
      stored.size(3) != config_.dim)
    return {};
  return nn::resample_grid(stored[0], rows_, columns_, nn::Resample::bicubic).unsqueeze(0);
}

void VilBackbone::first_values(const std::string& name, const torch::Tensor&, const nn::Filler& fill) const {
  if (name == "pos_embed.embed" || name == "cls_tokens")
    fill.truncated_normal(0.02);
  else if (name == "patch_embed.proj.weight")
    fill.xavier_uniform();
  else if (name == "head.weight")
    fill.truncated_normal(2e-5);
  else if (const size_t layer = name.find(".layer."); layer != std::string::npos)
    nn::initialise_mlstm_layer(name.substr(layer + 7), fill, layer_options());
}

}  // namespace tessera::models
