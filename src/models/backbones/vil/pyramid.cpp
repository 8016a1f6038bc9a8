// A hierarchical Vision-LSTM, which the paper's section 5 proposes ("hierarchical architectures") without
// published code. The design and the sizes are our own: Swin's stages (Liu et al. 2021) with mLSTM blocks.
//
//   x = norm(patches of 4x4 W)                 no absolute positions: the blocks' convolutions see the grid
//   block:           x' = x + layer(norm(x))   rows from the top left, then from the bottom right, and so on
//   between stages:  norm of 2x2 cells joined, then W to the next width
//   scores = head(norm(mean over the cells of x_L))
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "models/backbones/vil/blocks.h"
#include "models/base/patch_mask.h"
#include "models/base/pyramid.h"
#include "models/base/windows.h"
#include "nn/patch_embed.h"

namespace tessera::models::vil_pyramid {
namespace {

constexpr double kChunk = 49;    // tokens per chunk of the mLSTM, as the paper counts multiply-adds
constexpr int64_t kReaders = 4;  // block size of the headwise maps; the inner width is a multiple of it

struct Config : PyramidSettings {
  double expansion = 2;
  int64_t conv_kernel = 3;

  Config() {
    depths = {2, 2, 6, 2};
    heads = {4, 4, 4, 4};
    drop_path_decay = true;
  }

  template <class V>
  void visit(V& v) {
    visit_stages(v);
    v("expansion", expansion, between(0.25, 64), "width of the cell as a multiple of a stage's width");
    v("conv_kernel", conv_kernel, between(1, 31), "cells along a side of a block's convolution, odd");
    visit_drop_path(v);
  }

  void check() const {
    check_stages();
    if (conv_kernel % 2 == 0) fail_usage("model.conv_kernel = ", conv_kernel, ", must be odd");
    for (size_t stage = 0; stage < dims.size(); ++stage)
      if (const int64_t inner = layer(stage).inner; inner % heads[stage] != 0 || inner % kReaders != 0)
        fail_usage("model.dims[", stage, "] = ", dims[stage], " times model.expansion is ", inner,
                   ", must be a multiple of ", kReaders, " and of model.heads[", stage, "] = ", heads[stage]);
  }

  nn::MlstmLayerOptions layer(size_t stage) const {
    return {.width = dims[stage],
            .inner = static_cast<int64_t>(static_cast<double>(dims[stage]) * expansion),
            .heads = heads[stage],
            .kernel = conv_kernel};
  }
};

// Concatenates the four cells of a square and maps them to the next stage's width. An odd last row or column
// is padded with zeros. Parameters norm and reduction.
class Merging : public torch::nn::Module {
 public:
  Merging(int64_t in, int64_t out) {
    norm_ = register_module("norm", nn::LayerNorm(4 * in));
    reduction_ = register_module("reduction", nn::Linear(4 * in, out, false));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor even = pad_to_multiple(x, 2, 2);
    const torch::Tensor squares =
        even.reshape({x.size(0), even.size(1) / 2, 2, even.size(2) / 2, 2, x.size(3)})
            .permute({0, 1, 3, 2, 4, 5});
    return reduction_(norm_->before_linear(squares.flatten(3)));
  }
  int64_t macs() const { return reduction_->macs(); }  // per cell of the result

 private:
  nn::LayerNorm norm_{nullptr};
  nn::Linear reduction_{nullptr};
};

class VilPyramid final : public PyramidBackbone, public MasksPatches {
 public:
  explicit VilPyramid(const Config& config) : config_(config) {
    patch_embed_ = register_module(
        "patch_embed", nn::PatchEmbed(config.patch_size, config.dims[0], 0, true, config.in_channels));
    patch_norm_ = patch_embed_->register_module("norm", nn::LayerNorm(config.dims[0]));
    const auto list = register_module("stages", torch::nn::ModuleList());
    const std::vector<double> rates = config.drop_path_rates();
    int64_t index = 0;
    for (size_t stage = 0; stage < config.dims.size(); ++stage)
      list->push_back(make_stage(stage, rates, index));
    norm_ = register_module("norm", nn::LayerNorm(config.dims.back()));
  }

  int64_t embed_width() const override { return config_.dims.back(); }
  int64_t mask_width() const override { return config_.dims.front(); }
  int64_t map_stride() const override { return config_.patch_size << (config_.dims.size() - 1); }
  int64_t map_width() const override { return config_.dims.back(); }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t rows = height / config_.patch_size, columns = width / config_.patch_size;
    int64_t total = patch_embed_->macs(height, width);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (stage > 0) {
        rows = (rows + 1) / 2, columns = (columns + 1) / 2;
        total += rows * columns * merging_[stage - 1]->macs();
      }
      const auto inner = static_cast<double>(config_.layer(stage).inner);
      const double cell = 2 * (kChunk / 2 + 1) * inner + 2 / kChunk * inner * inner;  // per token
      for (const auto& block : stages_[stage])
        total += rows * columns * (block->layers()[0]->macs_per_token() + static_cast<int64_t>(cell));
    }
    return total;
  }

  void first_values(const std::string& name, const torch::Tensor& /*parameter*/,
                    const nn::Filler& fill) const override {
    if (name == "patch_embed.proj.weight")
      fill.xavier_uniform();
    else if (name == "head.weight")
      fill.truncated_normal(2e-5);
    else if (nn::ends_with(name, ".reduction.weight"))
      fill.truncated_normal(0.02);
    else if (const size_t layer = name.find(".layer."); layer != std::string::npos)
      nn::initialise_mlstm_layer(name.substr(layer + 7), fill, config_.layer(stage_of(name)));
  }

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    const torch::Tensor map = features(images, {block_count() - 1}, context)[0];
    return normed ? norm_(map.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}) : map;
  }

  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) return merging_[static_cast<size_t>(stage - 1)]->forward(before);
    return with_mask_tokens(patch_norm_(patch_embed_(before)));
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    const auto& block = stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)];
    return block->forward(x.flatten(1, 2), {x.size(1), x.size(2)}, context)
        .unflatten(1, {x.size(1), x.size(2)});
  }

  torch::Tensor read(const torch::Tensor& x) override { return norm_(x.mean({1, 2})); }

 private:
  // Returns the stage in "stages.2.blocks.0.layer.proj_up.weight".
  static size_t stage_of(const std::string& name) {
    return static_cast<size_t>(std::stoul(name.substr(std::string("stages.").size())));
  }

  std::shared_ptr<torch::nn::Module> make_stage(size_t stage, const std::vector<double>& rates,
                                                int64_t& index) {
    const auto owner = std::make_shared<torch::nn::Module>();
    if (stage > 0)
      merging_.push_back(owner->register_module(
          "downsample", std::make_shared<Merging>(config_.dims[stage - 1], config_.dims[stage])));
    const auto blocks = owner->register_module("blocks", torch::nn::ModuleList());
    const std::vector<nn::Traversal> ways = nn::traversals(2);
    stages_.emplace_back();
    for (int64_t i = 0; i < config_.depths[stage]; ++i, ++index) {
      const std::string name = "blocks." + std::to_string(stage) + "." + std::to_string(i);
      const auto block =
          std::make_shared<VilBlock>(VilBlockOptions{.layer = config_.layer(stage)},
                                     std::vector<nn::Traversal>{ways[static_cast<size_t>(i) % ways.size()]},
                                     rates[static_cast<size_t>(index)], index, name);
      blocks->push_back(block);
      stages_.back().push_back(block);
      keep_block(static_cast<int64_t>(stage), block);
    }
    return owner;
  }

  Config config_;
  nn::PatchEmbed patch_embed_{nullptr};
  nn::LayerNorm patch_norm_{nullptr}, norm_{nullptr};
  std::vector<std::shared_ptr<Merging>> merging_;
  std::vector<std::vector<std::shared_ptr<VilBlock>>> stages_;
};

Value size(int64_t dim, std::vector<int64_t> depths) {
  return table({{"dims", Value::Array{dim, 2 * dim, 4 * dim, 8 * dim}},
                {"depths", Value::Array(depths.begin(), depths.end())}});
}

}  // namespace

Family family() {
  return make_family<VilPyramid, Config>(
      "vil_pyramid", "hierarchical Vision-LSTM (our own design): mLSTM blocks in four stages",
      {
          {"vil_pyramid_tiny_224", {}, size(64, {2, 2, 6, 2})},
          {"vil_pyramid_small_224", {}, size(96, {2, 2, 12, 2})},
          {"vil_pyramid_base_224", {}, size(128, {2, 2, 18, 2})},
      });
}

}  // namespace tessera::models::vil_pyramid
