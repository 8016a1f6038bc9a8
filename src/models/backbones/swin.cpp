// Swin Transformer (Liu et al. 2021, "Swin Transformer: hierarchical vision transformer using shifted
// windows"). Names of parameters and sizes are timm's.
//
//   a block:         y = x + windows(norm(x)),  x' = y + mlp(norm(y));  every second block shifts the
//                    windows by half
//   windows:         softmax(q k^T / sqrt(d) + B) v, B a learned number per offset between two cells
//   between stages:  2 x 2 cells become one, 4 C channels normed and mapped to the next width
//   scores = head(mean over the cells of norm(x_L))
//
// Images of any size are supported: incomplete patches, windows and groups of 2 x 2 cells are padded with
// zeros. As in timm, the map is shifted before padding, and a grid not larger than a window has one window of
// its own size. The published codes for dense prediction differ (`form`): they pad first and never shrink a
// window; mmseg and mmdet merge cells channel by channel. With `stage_norms` each stage's map has its own
// norm, which the next stage does not see.
#include <torch/nn/modules/container/modulelist.h>

#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"
#include "models/base/patch_mask.h"
#include "models/base/pyramid.h"
#include "models/base/windows.h"
#include "nn/attention.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/relative_position.h"

namespace tessera::models::swin {
namespace {

constexpr double kEps = 1e-5;
constexpr const char* kBiasTable = "relative_position_bias_table";

enum class Positions { none, learned };
enum class Form { timm, original, mmseg };

}  // namespace
}  // namespace tessera::models::swin

template <>
struct tessera::EnumNames<tessera::models::swin::Positions> {
  static constexpr std::array names = {"none", "learned"};
};
template <>
struct tessera::EnumNames<tessera::models::swin::Form> {
  static constexpr std::array names = {"timm", "original", "mmseg"};
};

namespace tessera::models::swin {
namespace {

struct Config : PyramidSettings {
  int64_t window_size = 7;
  bool shift = true, relative_bias = true, patch_norm = true, stage_norms = false;
  double block_norm_eps = kEps, last_norm_eps = kEps;
  Positions positions = Positions::none;
  Form form = Form::timm;

  Config() {
    dims = {96, 192, 384, 768}, depths = {2, 2, 6, 2}, heads = {3, 6, 12, 24};
    drop_path_decay = true;
  }

  template <class V>
  void visit(V& v) {
    visit_stages(v);
    v("window_size", window_size, between(1, 128), "cells along a side of a window");
    v("shift", shift, "shift the windows of every second block by half a window");
    v("relative_bias", relative_bias, "a learned bias for each offset between two cells of a window");
    v("positions", positions, choice<Positions>(), "additional absolute positions of the patches");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of the token's");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("form", form, choice<Form>(),
      "the published code to follow in padding, shifting and merging (dense prediction)");
    v("patch_norm", patch_norm, "a norm after the patch embedding");
    v("block_norm_eps", block_norm_eps, above(0), "eps of the blocks' norms (transformers' layer_norm_eps)");
    v("last_norm_eps", last_norm_eps, above(0),
      "eps of the norm before the head (transformers' layer_norm_eps)");
    v("stage_norms", stage_norms,
      "a norm for the map of every stage instead of the last alone (dense prediction)");
    visit_drop_path(v);
  }

  bool pads_first() const { return form != Form::timm; }

  void check() const {
    extent_of(image_size, "image_size");
    check_stages();
    if (patch_size > 64) fail_usage("model.patch_size = ", patch_size, ", must be 1 to 64");
  }
};

nn::LayerNorm layer_norm(int64_t width, double eps = kEps) {
  return nn::LayerNorm(width, nn::LayerNormOptions{.eps = eps});
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Attention inside the windows of a map. Parameters relative_position_bias_table, qkv, proj.
class WindowAttention : public torch::nn::Module {
 public:
  WindowAttention(int64_t width, int64_t heads, Extent window, Extent shift, const Config& config)
      : window_(window), shift_(shift), form_(config.form) {
    if (config.relative_bias)
      table_ = register_parameter(
          kBiasTable, nn::zeros({nn::offset_bias_rows(window.height, window.width, false), heads}));
    attention_ = std::make_shared<nn::AttentionImpl>(width, heads, config.qkv_bias);
    for (const auto& part : attention_->named_children()) register_module(part.key(), part.value());
  }

  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, Taps* taps, const std::string& name,
                        const nn::Epilogue& epilogue) {
    const bool shifted = shift_.height > 0 || shift_.width > 0;
    const torch::Tensor whole = form_ == Form::timm ? x : pad_to_multiple(x, window_.height, window_.width);
    const torch::Tensor rolled =
        shifted ? torch::roll(whole, {-shift_.height, -shift_.width}, {1, 2}) : whole;
    torch::Tensor bias = relative_bias();
    if (shifted) {  // [windows, heads or 1, cells, cells]: for the windows of every image
      const torch::Tensor mask = shift_mask(x);
      bias = bias.defined() ? bias + mask : mask;
    }
    const torch::Tensor mixed = attention_->mix(to_windows(rolled, window_.height, window_.width),
                                                {.bias = bias, .taps = taps, .name = name});
    const torch::Tensor map =
        from_windows(mixed, window_.height, window_.width, whole.size(1), whole.size(2));
    const torch::Tensor back = shifted ? torch::roll(map, {shift_.height, shift_.width}, {1, 2}) : map;
    const bool padded = whole.size(1) != x.size(1) || whole.size(2) != x.size(2);
    return attention_->output(padded ? back.narrow(1, 0, x.size(1)).narrow(2, 0, x.size(2)) : back, epilogue);
  }

  int64_t macs(int64_t rows, int64_t columns) const {
    const int64_t windows = ceil_div(rows, window_.height) * ceil_div(columns, window_.width);
    return windows * attention_->mix_macs(cells()) + rows * columns * attention_->output_macs();
  }

  // Fits a stored table of another window size to this one, as the first published code does; undefined if it
  // is not such a table.
  torch::Tensor fit(const torch::Tensor& stored) const {
    if (!table_.defined()) return {};
    return nn::fit_offset_bias(stored, window_.height, window_.width, table_.size(1), /*class_token=*/false);
  }

 private:
  int64_t cells() const { return window_.height * window_.width; }

  // Returns the bias of each pair of cells, [1, heads, cells, cells].
  torch::Tensor relative_bias() const {
    return table_.defined() ? nn::offset_bias(table_, window_.height, window_.width) : torch::Tensor();
  }

  // Labels one side of the shifted map: 0 if no window wraps around, 1 and 2 for cells from either end.
  static torch::Tensor regions(int64_t size, int64_t window, int64_t shift) {
    if (shift == 0) return torch::zeros({size}, torch::kInt64);
    const torch::Tensor place = torch::arange(size);
    return place.ge(size - window).to(torch::kInt64) + place.ge(size - shift).to(torch::kInt64);
  }

  // Returns the mask [windows, 1, cells, cells] of the padded map x: -100 between cells that were not
  // neighbours before the shift.
  torch::Tensor shift_mask(const torch::Tensor& x) const {
    const int64_t rows = ceil_div(x.size(1), window_.height) * window_.height;
    const int64_t columns = ceil_div(x.size(2), window_.width) * window_.width;
    const torch::Tensor region = regions(rows, window_.height, shift_.height).unsqueeze(1) * 3 +
                                 regions(columns, window_.width, shift_.width);
    const torch::Tensor windows =
        to_windows(region.view({1, rows, columns, 1}), window_.height, window_.width).squeeze(2);
    const torch::Tensor apart = windows.unsqueeze(1) != windows.unsqueeze(2);
    return (apart.to(torch::kFloat32) * -100).unsqueeze(1).to(x.options());
  }

  Extent window_, shift_;
  Form form_;
  torch::Tensor table_;
  std::shared_ptr<nn::AttentionImpl> attention_;
};

struct BlockPlace {
  int64_t dim = 0, heads = 1, index = 0;  // index of the block in the model; keys the draws of drop path
  double drop_path = 0;
  Extent window = {}, shift = {};
  std::string name = {};  // prefix of the names of taps
};

class SwinBlock : public torch::nn::Module {
 public:
  SwinBlock(const BlockPlace& place, const Config& config) : place_(place) {
    norm1_ = register_module("norm1", layer_norm(place.dim, config.block_norm_eps));
    attn_ = register_module(
        "attn", std::make_shared<WindowAttention>(place.dim, place.heads, place.window, place.shift, config));
    norm2_ = register_module("norm2", layer_norm(place.dim, config.block_norm_eps));
    const auto hidden = static_cast<int64_t>(static_cast<double>(place.dim) * config.mlp_ratio);
    mlp_ = register_module("mlp", nn::Mlp(place.dim, hidden));
  }

  // Maps x [batch, rows, columns, dim] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const auto branch = [&](const torch::Tensor& in, int64_t number, const auto& body) {
      return nn::residual(in, {}, place_.drop_path, is_training(), 2 * place_.index + number, context, body);
    };
    const torch::Tensor y = branch(x, 0, [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
      return attn_->forward(norm1_(kept), context.taps, place_.name, epilogue);
    });
    return branch(y, 1, [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
      return mlp_->forward(norm2_->before_linear(kept), epilogue);
    });
  }

  int64_t macs(int64_t rows, int64_t columns) const {
    return attn_->macs(rows, columns) + rows * columns * mlp_->macs();
  }

 private:
  BlockPlace place_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  std::shared_ptr<WindowAttention> attn_;
  nn::Mlp mlp_{nullptr};
};

// Merges 2 x 2 cells into one. Their channels are in the order (0, 0), (1, 0), (0, 1), (1, 1) of row and
// column. `by_channel` (mmseg): a channel's four cells are adjacent, in the order (0, 0), (0, 1), (1, 0), (1,
// 1).
class PatchMerging : public torch::nn::Module {
 public:
  PatchMerging(int64_t in, int64_t out, const Config& config) : by_channel_(config.form == Form::mmseg) {
    norm_ = register_module("norm", layer_norm(4 * in));
    reduction_ = register_module("reduction", nn::Linear(4 * in, out, false));
  }

  torch::Tensor forward(const torch::Tensor& map) {
    const torch::Tensor x = pad_to_multiple(map, 2, 2);
    const int64_t batch = x.size(0), rows = x.size(1) / 2, columns = x.size(2) / 2;
    const torch::Tensor apart = x.reshape({batch, rows, 2, columns, 2, x.size(3)});
    const torch::Tensor cells =
        (by_channel_ ? apart.permute({0, 1, 3, 5, 2, 4}) : apart.permute({0, 1, 3, 4, 2, 5})).flatten(3);
    return reduction_(norm_->before_linear(cells));
  }

  int64_t macs() const { return reduction_->macs(); }  // per new cell

 private:
  bool by_channel_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear reduction_{nullptr};
};

class Swin final : public PyramidBackbone, public MasksPatches {
 public:
  explicit Swin(const Config& config) : config_(config) {
    const Extent image = extent_of(config.image_size, "image_size");
    Extent grid = grid_of(image.height, image.width);
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dims[0], 0, true, config.in_channels));
    if (config.patch_norm) patch_norm_ = patch_embed_->register_module("norm", layer_norm(config.dims[0]));
    if (config.positions == Positions::learned)
      absolute_ =
          register_parameter("absolute_pos_embed", nn::zeros({1, grid.height * grid.width, config.dims[0]}));
    built_ = grid;
    auto layers = register_module("layers", torch::nn::ModuleList());
    const std::vector<double> rates = config.drop_path_rates();
    int64_t index = 0;
    for (size_t stage = 0; stage < config.dims.size(); ++stage) {
      if (stage > 0) grid = {ceil_div(grid.height, 2), ceil_div(grid.width, 2)};
      layers->push_back(make_stage(stage, grid, rates, index));
    }
    for (size_t stage = 0; config.stage_norms && stage < config.dims.size(); ++stage)
      stage_norms_.push_back(register_module("norm" + std::to_string(stage), layer_norm(config.dims[stage])));
    if (!config.stage_norms)
      norm_ = register_module("norm", layer_norm(config.dims.back(), config.last_norm_eps));
  }

  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& stages,
                                      const Context& context) override {
    std::vector<torch::Tensor> maps = PyramidBackbone::features(images, stages, context);
    for (size_t i = 0; i < maps.size() && config_.stage_norms; ++i)
      maps[i] =
          stage_norms_[static_cast<size_t>(stages[i])](maps[i].permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
    return maps;
  }

  int64_t embed_width() const override { return config_.dims.back(); }
  int64_t mask_width() const override { return config_.dims.front(); }
  int64_t map_stride() const override { return config_.patch_size << (config_.dims.size() - 1); }
  int64_t map_width() const override { return config_.dims.back(); }
  std::vector<std::string> head_names() const override { return {"head.fc"}; }

  int64_t macs(int64_t height, int64_t width) const override {
    Extent grid = grid_of(height, width);
    int64_t total = patch_embed_->macs(grid.height * config_.patch_size, grid.width * config_.patch_size);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (stage > 0) {
        grid = {ceil_div(grid.height, 2), ceil_div(grid.width, 2)};
        total += grid.height * grid.width * merging_[stage - 1]->macs();
      }
      for (const auto& block : stages_[stage]) total += block->macs(grid.height, grid.width);
    }
    return total;
  }

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names{"absolute_pos_embed"};
    for (const auto& entry : named_parameters())
      if (nn::ends_with(entry.key(), kBiasTable)) names.push_back(entry.key());
    return names;
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name == "absolute_pos_embed")
      return nn::fit_square_tokens(stored, 0, built_.height, built_.width, config_.dims[0],
                                   nn::Resample::bicubic);
    for (const auto& entry : named_modules())
      if (const auto attention = std::dynamic_pointer_cast<WindowAttention>(entry.value());
          attention && name == entry.key() + "." + kBiasTable)
        return attention->fit(stored);
    return {};
  }

  // Initialises as timm: truncated normal for linear layers and tables, PyTorch's default for the patch
  // embedding.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "patch_embed.proj.weight")
      fill.fan_in_uniform(parameter[0].numel());
    else if (parameter.dim() > 1)
      fill.truncated_normal(0.02);
  }

 protected:
  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    return stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
  }

  torch::Tensor read(const torch::Tensor& x) override {
    return (norm_ ? norm_(x) : stage_norms_.back()(x)).mean({1, 2});
  }

  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    const torch::Tensor map = features(images, {block_count() - 1}, context)[0];
    return normed && norm_ ? norm_(map.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}) : map;
  }

  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) return merging_[static_cast<size_t>(stage - 1)]->forward(before);
    check(before.dim() == 4, "images have shape ", before.sizes(),
          ", must be [batch, channels, height, width]");
    const int64_t side = config_.patch_size;
    const int64_t below = ceil_div(before.size(2), side) * side - before.size(2);
    const int64_t right = ceil_div(before.size(3), side) * side - before.size(3);
    const torch::Tensor images =
        below || right ? torch::constant_pad_nd(before, {0, right, 0, below}) : before;
    const torch::Tensor patches = patch_embed_(images),
                        x = with_mask_tokens(patch_norm_ ? patch_norm_(patches) : patches);
    if (!absolute_.defined()) return x;
    const torch::Tensor positions = nn::resample_tokens(absolute_, 0, built_.height, built_.width, x.size(1),
                                                        x.size(2), nn::Resample::bicubic);
    return x + positions.view({1, x.size(1), x.size(2), x.size(3)});
  }

 private:
  Extent grid_of(int64_t height, int64_t width) const {
    return {ceil_div(height, config_.patch_size), ceil_div(width, config_.patch_size)};
  }

  std::shared_ptr<torch::nn::Module> make_stage(size_t stage, Extent grid, const std::vector<double>& rates,
                                                int64_t& index) {
    const auto owner = std::make_shared<torch::nn::Module>();
    if (stage > 0)
      merging_.push_back(owner->register_module(
          "downsample",
          std::make_shared<PatchMerging>(config_.dims[stage - 1], config_.dims[stage], config_)));
    const auto blocks = owner->register_module("blocks", torch::nn::ModuleList());
    const int64_t side = config_.window_size;
    const bool whole = config_.pads_first();  // windows and shifts do not depend on the grid
    const Extent window =
        whole ? Extent{side, side} : Extent{std::min(grid.height, side), std::min(grid.width, side)};
    const Extent half{whole || grid.height > side ? side / 2 : 0, whole || grid.width > side ? side / 2 : 0};
    stages_.emplace_back();
    for (int64_t i = 0; i < config_.depths[stage]; ++i, ++index) {
      const BlockPlace place{.dim = config_.dims[stage],
                             .heads = config_.heads[stage],
                             .index = index,
                             .drop_path = rates[static_cast<size_t>(index)],
                             .window = window,
                             .shift = config_.shift && i % 2 == 1 ? half : Extent{},
                             .name = "blocks." + std::to_string(stage) + "." + std::to_string(i)};
      const auto block = std::make_shared<SwinBlock>(place, config_);
      blocks->push_back(block);
      stages_.back().push_back(block);
      keep_block(static_cast<int64_t>(stage), block);
    }
    return owner;
  }

  Config config_;
  Extent built_;  // grid of the images that the model was built for
  nn::PatchEmbed patch_embed_{nullptr};
  nn::LayerNorm patch_norm_{nullptr}, norm_{nullptr};
  std::vector<nn::LayerNorm> stage_norms_;
  torch::Tensor absolute_;
  std::vector<std::vector<std::shared_ptr<SwinBlock>>> stages_;
  std::vector<std::shared_ptr<PatchMerging>> merging_;
};

Value size(int64_t dim, int64_t deep, int64_t heads, Value extra = {}) {
  const auto doubling = [](int64_t first) { return Value::Array{first, 2 * first, 4 * first, 8 * first}; };
  Value settings =
      table({{"dims", doubling(dim)}, {"depths", Value::Array{2, 2, deep, 2}}, {"heads", doubling(heads)}});
  merge(settings, extra);
  return settings;
}

Value of_384() { return table({{"image_size", 384}, {"window_size", 12}}); }
Value whole() { return table({{"crop", 1.0}}); }

}  // namespace

Family family() {
  Family family = make_family<Swin, Config>(
      "swin", "Swin Transformer: attention inside shifted windows, four stages",
      {
          {"swin_tiny_patch4_window7_224", {}, size(96, 6, 3)},
          {"swin_small_patch4_window7_224", {}, size(96, 18, 3)},
          {"swin_base_patch4_window7_224", {}, size(128, 18, 4)},
          {"swin_base_patch4_window12_384", {}, size(128, 18, 4, of_384()), whole()},
          {"swin_large_patch4_window7_224", {}, size(192, 18, 6)},
          {"swin_large_patch4_window12_384", {}, size(192, 18, 6, of_384()), whole()},
      });
  family.preprocess = table({{"crop", 0.9}});  // timm's configuration
  return family;
}

}  // namespace tessera::models::swin
