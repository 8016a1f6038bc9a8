#include "models/backbones/vil/backbone.h"

#include <algorithm>

#include "core/error.h"
#include "nn/position.h"
#include "ops/gpu.h"

namespace tessera::models {
namespace {

// The mLSTM's chunk length in tokens for which the counts equal the paper's Tables 1 and 2.
constexpr double kChunk = 49;

torch::Tensor index_of(const std::vector<int64_t>& places, const torch::Tensor& x) {
  return ops::kept_on(x.device(), torch::tensor(places, torch::kInt64));
}

// Returns the middle rows or columns: one if their number is odd, two if it is even.
std::vector<int64_t> middle(int64_t size) {
  return size % 2 == 1 ? std::vector<int64_t>{size / 2} : std::vector<int64_t>{size / 2 - 1, size / 2};
}

nn::MlstmLayerOptions layer_options(const VilConfig& config, const char* conv_name) {
  return {.width = config.dim,
          .inner = config.inner(),
          .heads = config.heads,
          .conv = config.conv_kind,
          .conv_name = conv_name,
          .kernel = config.conv_kernel,
          .proj_bias = config.proj_bias,
          .norm_bias = config.norm_bias,
          .conv_bias = config.conv_bias,
          .skip = config.skip,
          .paper_cell = config.cell == VilCell::paper,
          .share_conv = config.share_conv,
          .value_conv = config.value_conv,
          .share_directions = config.share_directions,
          .init_values = config.init_values};
}

std::vector<int64_t> windows_of(const VilConfig& config) {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < config.depth; ++i) windows.push_back(config.window_of(i));
  return windows;
}

VilStack stack_of(const VilConfig& config, bool pairs, const nn::MlstmLayerOptions& layer) {
  using Layout = VilStack::Layout;
  const Layout alternating = pairs ? Layout::pairs : Layout::singles;
  return {.block = {.norm = config.norm, .norm_bias = config.norm_bias, .layer = layer},
          .depth = config.depth,
          .directions = config.direction_count(),
          .layout = config.traversal == VilTraversal::in_layer   ? Layout::in_layer
                    : config.traversal == VilTraversal::parallel ? Layout::parallel
                                                                 : alternating,
          .drop_path = config.drop_path_rates(config.depth),
          .windows = windows_of(config)};
}

}  // namespace

VilBackbone::VilBackbone(const VilConfig& config, const VilVersion& version)
    : config_(config), layer_(layer_options(config, version.conv_name)) {
  rows_ = config.grid().height;
  columns_ = config.grid().width;
  patch_embed_ = register_module(
      "patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.stride, true, config.in_channels));
  if (config.positions) {
    pos_embed_ = register_module("pos_embed", std::make_shared<PositionTable>());
    pos_embed_->embed = pos_embed_->register_parameter("embed", nn::zeros({1, rows_, columns_, config.dim}));
  }
  if (const int64_t number = config.class_tokens(); number > 0)
    cls_tokens_ = register_parameter("cls_tokens", nn::zeros({1, number, config.dim}));
  units_ = make_units(stack_of(config, version.pairs, layer_));
  for (const auto& unit : units_) add_block(unit);
  add_conv_blocks(config, config.dim);
  make_norms(version);
}

void VilBackbone::make_norms(const VilVersion& version) {
  const bool training = config_.norm_eps == VilNormEps::training;
  const double token_eps = training ? 1e-5 : version.token_eps, read_eps = training ? 1e-6 : version.read_eps;
  const VilBlockOptions options{.norm = config_.norm, .norm_bias = config_.norm_bias, .layer = layer_};
  if (!version.token_norm_is_legacy || config_.legacy_norm)
    token_norm_ = register_scaled_norm(*this, version.token_norm, options, token_eps);
  if (version.token_norm_is_legacy || config_.legacy_norm)
    read_norm_ = register_norm(*this, version.read_norm, config_.norm, config_.read_width(), read_eps);
}

std::vector<std::string> VilBackbone::head_names() const {
  return config_.mode == VilMode::features ? std::vector<std::string>{} : Backbone::head_names();
}

Tokens VilBackbone::tokenise(const torch::Tensor& images, const Context&) {
  const torch::Tensor patches = with_mask_tokens(patch_embed_(images));
  const int64_t batch = patches.size(0), rows = patches.size(1), columns = patches.size(2);
  const int64_t count = rows * columns;
  check(config_.conv_grid == VilConvGrid::input || config_.conv_kind != nn::MlstmConv::grid ||
            count % rows_ == 0,
        "conv_grid = built: ", count, " tokens do not make ", rows_, " rows");
  torch::Tensor x = patches;
  if (pos_embed_) x = x + position_table(rows, columns);
  x = x.reshape({batch, count, config_.dim});
  Tokens tokens;
  static_cast<TokenPlaces&>(tokens) = config_.places(rows, columns);
  const std::vector<int64_t> places = tokens.others();
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
  tokens.x = x;
  return tokens;
}

std::string VilBackbone::keep_refusal() const {
  if (config_.window_size > 0) return "model.window_size cuts the whole map into windows";
  if (!config_.conv_blocks.empty()) return "model.conv_blocks read the neighbours of every patch";
  if (config_.conv_kind == nn::MlstmConv::grid)
    return "model.conv_kind = \"2d\" reads the neighbours of every patch";
  if (config_.direction_count() > 2)
    return "model.directions = \"" + name_of(config_.directions) + "\" walks along the grid's columns";
  return "";
}

std::string VilBackbone::step_refusal() const {
  if (config_.window_size > 0 || !config_.conv_blocks.empty()) return keep_refusal();
  if (config_.directions != VilDirections::uni)
    return "model.directions = \"" + name_of(config_.directions) + "\" must be \"uni\"";
  if (config_.conv_kind == nn::MlstmConv::grid || config_.conv_kind == nn::MlstmConv::sequence)
    return "model.conv_kind = \"" + name_of(config_.conv_kind) + "\" sees patches to come";
  return "";
}

std::string VilBackbone::next_refusal() const {
  if (built_places().middle > 0)
    return "model.pooling = \"" + name_of(config_.pooling) + "\" puts a token among the patches";
  if (config_.stride > 0 && config_.stride < config_.patch_size)
    return "model.stride = " + std::to_string(config_.stride) + " shows a part of the patches to come";
  return step_refusal();
}

torch::Tensor VilBackbone::embed_patches(const torch::Tensor& images) const {
  return patch_embed_->forward(images).flatten(1, 2);
}

torch::Tensor VilBackbone::front_tokens() const {
  const int64_t before = built_places().before;
  return before > 0 ? cls_tokens_.slice(1, 0, before) : torch::Tensor();
}

torch::Tensor VilBackbone::position_table(int64_t rows, int64_t columns) const {
  return nn::resample_grid(pos_embed_->embed[0], rows, columns, nn::Resample::bicubic);
}

TokenPlaces VilBackbone::built_places() const {
  const Extent image = extent_of(config_.image_size, "image_size");
  return config_.places(patch_embed_->rows(image.height), patch_embed_->rows(image.width));
}

// A class token has no position.
torch::Tensor VilBackbone::position_at(int64_t place) const {
  const TokenPlaces built = built_places();
  int64_t patch = place;
  for (const int64_t other : built.others()) {
    if (other == place) return {};
    if (other < place) --patch;
  }
  if (!pos_embed_) return {};
  return position_table(built.rows, built.columns).flatten(0, 1).slice(0, patch, patch + 1);
}

torch::Tensor VilBackbone::step_block(int64_t index, const torch::Tensor& x, int64_t,
                                      std::vector<torch::Tensor>& state) {
  return units_[static_cast<size_t>(index)]->step(x, state);
}

// Selected patches form a sequence without a grid.
nn::TokenGrid VilBackbone::grid_of(const TokenPlaces& places) const {
  if (places.kept.defined()) return {1, places.patches(), places.others()};
  const int64_t patches = places.patches();
  // The published code fixes the number of the convolution's rows when the model is built.
  const bool built = config_.conv_grid == VilConvGrid::built && config_.conv_kind == nn::MlstmConv::grid;
  const int64_t rows = built ? rows_ : places.rows;
  return {rows, patches / rows, places.others()};
}

torch::Tensor VilBackbone::run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                                     const Context& context) {
  return units_[static_cast<size_t>(index)]->forward(x, grid_of(tokens), context);
}

torch::Tensor VilBackbone::norm_tokens(const torch::Tensor& last) {
  return token_norm_ ? token_norm_(last) : last;
}

torch::Tensor VilBackbone::published_features(const torch::Tensor& images, const Context& context) {
  check(config_.mode == VilMode::features, "model.mode is classifier, must be features");
  const Tokens tokens = tokenise(images, context);
  torch::Tensor x = norm_tokens(run(tokens, context));
  if (read_norm_) x = read_norm_(x);
  return config_.pooling == VilPooling::to_image ? tokens.map_of(x) : x;
}

torch::Tensor VilBackbone::read(const torch::Tensor& last, const TokenPlaces& places, const Context&) {
  const torch::Tensor x = norm_tokens(last);
  const bool on_grid = config_.pooling == VilPooling::middle || config_.pooling == VilPooling::center_mean;
  check(!on_grid || !places.kept.defined(), "model.pooling = \"", name_of(config_.pooling),
        "\" reads patches by their place, some were left out");
  const auto ends = [&] { return std::pair(x.select(1, 0), x.select(1, -1)); };
  torch::Tensor vector;
  switch (config_.pooling) {
    case VilPooling::bilateral_flatten:
      vector = torch::cat({ends().first, ends().second}, 1);
      break;
    case VilPooling::bilateral_avg:
      vector = (ends().first + ends().second) / 2;
      break;
    case VilPooling::middle:
      vector = x.select(1, places.patches() / 2);
      break;
    case VilPooling::center_mean: {
      std::vector<int64_t> center;
      for (const int64_t row : middle(places.rows))
        for (const int64_t column : middle(places.columns)) center.push_back(row * places.columns + column);
      vector = x.index_select(1, index_of(center, x)).mean(1);
      break;
    }
    case VilPooling::mean:
    case VilPooling::none:
    case VilPooling::to_image:
      vector = x.mean(1);
      break;
    default:
      vector = x.index_select(1, index_of(places.others(), x)).flatten(1);
  }
  return read_norm_ ? read_norm_(vector) : vector;
}

int64_t VilBackbone::count_macs(int64_t height, int64_t width,
                                const std::function<double(double tokens)>& cell) const {
  const int64_t rows = patch_embed_->rows(height), columns = patch_embed_->rows(width);
  int64_t total = patch_embed_->macs(height, width) + rows * columns * conv_block_macs();
  for (size_t i = 0; i < units_.size(); ++i) {
    const int64_t side = config_.window_of(static_cast<int64_t>(i));
    const int64_t sequences = side > 0 ? window_count(rows, columns, side) : 1;
    const int64_t tokens = side > 0 ? side * side : rows * columns + config_.class_tokens();
    for (const nn::MlstmLayer& layer : units_[i]->layers()) {
      const auto directions = static_cast<double>(layer->options().directions.size());
      total += sequences * (tokens * layer->macs_per_token() +
                            static_cast<int64_t>(directions * cell(static_cast<double>(tokens))));
    }
  }
  return total;
}

// Counts as in the paper's appendix B.2: the chunkwise form, with two products over half the matrix inside
// each chunk, and two products with a d x d state per chunk.
int64_t VilBackbone::macs(int64_t height, int64_t width) const {
  const auto inner = static_cast<double>(layer_.inner);
  return count_macs(height, width, [inner](double tokens) {
    return tokens * (2 * (kChunk / 2 + 1) * inner + 2 / kChunk * inner * inner);
  });
}

// Counts every product. Inside a chunk: the scores, and their weighted values. Each token also reads its
// head's state before the chunk, except in the first chunk, and is written into it, except in the last.
double VilBackbone::exact_cell(MlstmForm form, double tokens) const {
  const auto heads = static_cast<double>(layer_.heads), d = static_cast<double>(layer_.inner) / heads;
  if (form == MlstmForm::recurrent) return heads * tokens * 2 * (d * d + d);
  if (form == MlstmForm::parallel) return heads * tokens * (tokens + 1) * d;
  double total = 0;
  for (double first = 0; first < tokens; first += kChunk) {
    const double own = std::min(kChunk, tokens - first);
    const double reads = first > 0 ? 1 : 0, writes = first + own < tokens ? 1 : 0;
    total += own * (own + 1) * d + (reads + writes) * own * (d * d + d);
  }
  return heads * total;
}

int64_t VilBackbone::exact_macs(int64_t height, int64_t width) const {
  return count_macs(height, width, [](double) { return 0; }) + cell_macs(MlstmForm::chunkwise, height, width);
}

int64_t VilBackbone::cell_macs(MlstmForm form, int64_t height, int64_t width) const {
  return count_macs(height, width, [&](double tokens) { return exact_cell(form, tokens); }) -
         count_macs(height, width, [](double) { return 0; });
}

torch::Tensor VilBackbone::fit(const std::string& name, const torch::Tensor& stored) const {
  if (name != "pos_embed.embed" || !pos_embed_ || stored.dim() != 4 || stored.size(0) != 1 ||
      stored.size(3) != config_.dim)
    return {};
  return nn::resample_grid(stored[0], rows_, columns_, nn::Resample::bicubic).unsqueeze(0);
}

void VilBackbone::first_values(const std::string& name, const torch::Tensor& parameter,
                               const nn::Filler& fill) const {
  if (ConvBottleneck::first_values(name, parameter, fill)) return;
  if (name == "pos_embed.embed" || name == "cls_tokens")
    fill.truncated_normal(0.02);
  else if (name == "patch_embed.proj.weight")
    fill.xavier_uniform();
  else if (name == "head.weight")
    fill.truncated_normal(2e-5);
  else if (const size_t layer = name.find(".layer."); layer != std::string::npos)
    nn::initialise_mlstm_layer(name.substr(layer + 7), fill, layer_);
}

}  // namespace tessera::models
