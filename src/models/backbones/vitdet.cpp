// The plain ViT of ViTDet (Li, Mao, Girshick & He 2022, "Exploring plain vision transformer backbones for
// object detection"). Parameters have detectron2's names.
//
//   tokens stay a map of patches; no class token, no norm after the last block
//   most blocks attend inside windows of 14 x 14 patches, four (model.global_blocks) over the whole map
//   or every block inside windows, with a residual bottleneck of convolutions after some (model.conv_blocks)
//   scores = softmax(q k^T / sqrt(d) + q . Rh + q . Rw),  Rh, Rw a learned vector per row and column offset
//
// A table of offsets is interpolated for maps of other sizes, like the learned positions.

#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/residual_block.h"
#include "models/base/windows.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "nn/position.h"

namespace tessera::models::vitdet {
namespace {

struct Config : DropPathSettings, WindowSettings {
  Value image_size = 1024;
  int64_t patch_size = 16, dim = 768, depth = 12, heads = 12;
  double mlp_ratio = 4;
  bool qkv_bias = true, offset_vectors = true;
  int64_t position_grid = 14;
  bool class_position = true;

  Config() {
    drop_path_decay = true;
    window_size = 14;
    global_blocks = {2, 5, 8, 11};
  }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size,
      "side in pixels, or [height, width]; the tables of global blocks are of its size");
    v("patch_size", patch_size, kPatchSize, "side of a patch in pixels");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of the token's");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    visit_windows(v);
    v("offset_vectors", offset_vectors,
      "a learned vector for each offset of rows and of columns (decomposed)");
    v("position_grid", position_grid, between(1, 1024),
      "side of the grid of learned positions (pre-training's)");
    v("class_position", class_position,
      "the learned positions begin with one for a class token, which is not used");
    visit_drop_path(v);
  }
  void check() const {
    check_grid(image_size, patch_size);
    check_width(dim, heads);
    const Extent image = extent_of(image_size, "image_size");
    check_tokens(image.height / patch_size, image.width / patch_size, dim);
    check_windows(depth);
  }
};

// Returns a vector [head width] for each pair of query and key rows (or columns): [size, size, width].
torch::Tensor offset_rows(const torch::Tensor& table, int64_t size) {
  torch::Tensor of_size = table;
  if (table.size(0) != 2 * size - 1)
    of_size =
        at::upsample_linear1d(table.t().unsqueeze(0), {2 * size - 1}, /*align_corners=*/false).squeeze(0).t();
  const torch::Tensor places =
      torch::arange(size, torch::TensorOptions(torch::kInt64).device(table.device()));
  const torch::Tensor offsets = places.unsqueeze(1) - places.unsqueeze(0) + (size - 1);
  return of_size.index_select(0, offsets.flatten()).view({size, size, table.size(1)});
}

// Parameters qkv, proj, rel_pos_h, rel_pos_w.
class MapAttention : public torch::nn::Module {
 public:
  MapAttention(const Config& config, Extent built) {
    attention_ = std::make_shared<nn::AttentionImpl>(config.dim, config.heads, config.qkv_bias);
    const int64_t width = config.dim / config.heads;
    if (config.offset_vectors) {
      rows_ = register_parameter("rel_pos_h", nn::zeros({2 * built.height - 1, width}));
      columns_ = register_parameter("rel_pos_w", nn::zeros({2 * built.width - 1, width}));
    }
    for (const auto& part : attention_->named_children()) register_module(part.key(), part.value());
  }

  // Maps the tokens x [batch, rows * columns, dim] of a map to the same shape, without the last layer.
  torch::Tensor mix(const nn::DeferredNorm& x, int64_t rows, int64_t columns, Taps* taps,
                    const std::string& name) {
    const auto [q, k, v] = attention_->project(x);
    nn::AttentionExtras extras{.taps = taps, .name = name};
    if (rows_.defined()) {
      const torch::Tensor map = q.unflatten(2, {rows, columns});  // [batch, heads, rows, columns, width]
      const torch::Tensor by_row = torch::einsum("bnhwc,hkc->bnhwk",
                                                 {map, offset_rows(rows_, rows).to(q.scalar_type())}),
                          by_column = torch::einsum(
                              "bnhwc,wkc->bnhwk", {map, offset_rows(columns_, columns).to(q.scalar_type())});
      extras.bias = (by_row.unsqueeze(5) + by_column.unsqueeze(4)).flatten(4).flatten(2, 3);
    }
    return nn::AttentionImpl::merge(nn::attend(q, k, v, extras));
  }
  torch::Tensor output(const torch::Tensor& mixed, const nn::Epilogue& epilogue) {
    return attention_->output(mixed, epilogue);
  }
  int64_t macs(int64_t tokens) const { return attention_->macs(tokens); }

 private:
  std::shared_ptr<nn::AttentionImpl> attention_;
  torch::Tensor rows_, columns_;
};

class MapBlock : public ResidualBlock {
 public:
  MapBlock(const Config& config, int64_t index, double drop_path)
      : ResidualBlock({.dim = config.dim,
                       .mlp = MlpKind::gelu,
                       .hidden = default_hidden(MlpKind::gelu, config.dim, config.mlp_ratio),
                       .drop_path = drop_path,
                       .index = index,
                       .name = "blocks." + std::to_string(index)}),
        window_(config.window_of(index)) {
    const Extent image = extent_of(config.image_size, "image_size");
    const Extent grid{image.height / config.patch_size, image.width / config.patch_size};
    attn_ = register_module(
        "attn", std::make_shared<MapAttention>(config, window_ > 0 ? Extent{window_, window_} : grid));
    if (config.has_convs(index))
      residual_ = register_module("residual", std::make_shared<ConvBottleneck>(config.dim));
  }

  // Maps x [batch, rows, columns, dim] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const int64_t rows = x.size(1), columns = x.size(2);
    const torch::Tensor y = apply(
        x, context, [&](const nn::DeferredNorm& normed, const nn::Epilogue& epilogue, const torch::Tensor&) {
          const torch::Tensor map = normed;
          if (window_ == 0)
            return attn_->output(
                attn_->mix(map.flatten(1, 2), rows, columns, context.taps, tap_name()).view(map.sizes()),
                epilogue);
          const torch::Tensor mixed =
              attn_->mix(to_windows(pad_to_multiple(map, window_, window_), window_, window_), window_,
                         window_, context.taps, tap_name());
          return attn_->output(from_windows(mixed, window_, window_, rows, columns), epilogue);
        });
    return residual_ ? residual_->forward(y) : y;
  }

  int64_t macs(int64_t rows, int64_t columns) const {
    const int64_t tokens = rows * columns;
    int64_t total = tokens * (mlp_macs() + (residual_ ? residual_->macs() : 0));
    if (window_ == 0) return total + attn_->macs(tokens);
    return total + window_count(rows, columns, window_) * attn_->macs(window_ * window_);
  }

 private:
  int64_t window_;  // 0 = the whole map
  std::shared_ptr<MapAttention> attn_;
  std::shared_ptr<ConvBottleneck> residual_;
};

class VitDet final : public Backbone {
 public:
  explicit VitDet(const Config& config) : config_(config) {
    const int64_t entries = config.position_grid * config.position_grid + (config.class_position ? 1 : 0);
    pos_embed_ = register_parameter("pos_embed", nn::zeros({1, entries, config.dim}));
    patch_embed_ = register_module("patch_embed", nn::PatchEmbed(config.patch_size, config.dim));
    auto list = register_module("blocks", torch::nn::ModuleList());
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<MapBlock>(config, i, rates[static_cast<size_t>(i)]));
      list->push_back(blocks_.back());
    }
  }

  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                      const Context& context) override {
    int64_t needed = 0;
    for (const int64_t block : blocks) {
      check(block >= 0 && block < block_count(), "features: there is no block ", block, ", the model has ",
            block_count());
      needed = std::max(needed, block + 1);
    }
    const std::vector<torch::Tensor> outputs = run(images, needed, context);
    std::vector<torch::Tensor> maps;
    for (const int64_t block : blocks)
      maps.push_back(outputs[static_cast<size_t>(block)].permute({0, 3, 1, 2}));
    return maps;
  }

  torch::Tensor embed(const torch::Tensor& images, const Context& context) override {
    return tap(context.taps, "embed", run(images, block_count(), context).back().mean({1, 2}));
  }
  int64_t embed_width() const override { return config_.dim; }
  int64_t block_count() const override { return std::ssize(blocks_); }
  std::vector<std::vector<torch::Tensor>> units() const override { return nn::parameters_of_each(blocks_); }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t total = patch_embed_->macs(height, width);
    for (const auto& block : blocks_)
      total += block->macs(height / config_.patch_size, width / config_.patch_size);
    return total;
  }

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names{"pos_embed"};
    for (const auto& entry : named_parameters())
      if (entry.key().find(".rel_pos_") != std::string::npos) names.push_back(entry.key());
    return names;
  }

  // Interpolates stored tables of offsets and learned positions of another grid, as at run
  // time.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name == "pos_embed")
      return nn::fit_square_tokens(stored, config_.class_position ? 1 : 0, config_.position_grid,
                                   config_.position_grid, config_.dim, nn::Resample::bicubic);
    if (name.find(".rel_pos_") == std::string::npos || stored.dim() != 2) return {};
    const auto parameters = named_parameters();
    const torch::Tensor* own = parameters.find(name);
    if (!own || own->size(1) != stored.size(1)) return {};
    return at::upsample_linear1d(stored.t().unsqueeze(0), {own->size(0)}, false).squeeze(0).t().contiguous();
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (ConvBottleneck::first_values(name, parameter, fill)) return;
    if (name == "patch_embed.proj.weight")
      fill.fan_in_uniform(parameter[0].numel());
    else if (name == "pos_embed" || (parameter.dim() == 2 && name.find(".rel_pos_") == std::string::npos))
      fill.truncated_normal(0.02);
  }

 private:
  std::vector<torch::Tensor> run(const torch::Tensor& images, int64_t count, const Context& context) {
    check_condition(context, images.size(0));
    torch::Tensor x = patch_embed_(images);
    const int64_t prefix = config_.class_position ? 1 : 0, side = config_.position_grid;
    const torch::Tensor positions = nn::resample_tokens(pos_embed_.slice(1, prefix), 0, side, side, x.size(1),
                                                        x.size(2), nn::Resample::bicubic);
    x = x + positions.view({1, x.size(1), x.size(2), config_.dim});
    const bool recompute = checkpointing && is_training() && !context.taps;
    std::vector<torch::Tensor> outputs;
    for (int64_t i = 0; i < count; ++i) {
      const auto& block = blocks_[static_cast<size_t>(i)];
      const auto body = [block, context](const torch::Tensor& in) { return block->forward(in, context); };
      x = nn::run_unit(
          x, {.body = body, .parameters = [&] { return block->parameters(); }, .recompute = recompute});
      outputs.push_back(tap(context.taps, "blocks." + std::to_string(i), x));
    }
    return outputs;
  }

  Config config_;
  torch::Tensor pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  std::vector<std::shared_ptr<MapBlock>> blocks_;
};

Value size(int64_t dim, int64_t depth, int64_t heads, double drop_path) {
  Value::Array global;
  for (int64_t i = 1; i <= 4; ++i) global.emplace_back(i * depth / 4 - 1);
  return table({{"dim", dim},
                {"depth", depth},
                {"heads", heads},
                {"global_blocks", global},
                {"drop_path", drop_path}});
}

}  // namespace

Family family() {
  return make_family<VitDet, Config>("vitdet",
                                     "ViT of ViTDet: windows and a few global blocks, for detection",
                                     {
                                         {"vitdet_base", {}, size(768, 12, 12, 0.1)},
                                         {"vitdet_large", {}, size(1024, 24, 16, 0.4)},
                                         {"vitdet_huge", {}, size(1280, 32, 16, 0.5)},
                                     });
}

}  // namespace tessera::models::vitdet
