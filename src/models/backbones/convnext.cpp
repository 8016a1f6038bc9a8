// ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s") and ConvNeXt V2 (Woo et al. 2023). Names of
// parameters and sizes are timm's; the papers' own files and torchvision's are renamed on loading.
//
//   a block:         x' = x + gamma * fc2(gelu(fc1(norm(conv(x))))), conv depthwise over 7x7 cells
//   V2:              without gamma, and with y = h + weight * h * N(h) + bias between gelu and fc2,
//                    N(h) = G(h) / mean over the channels of G(h), G(h) = |h| over the cells (eq. 1 to 3)
//   stem:            patches of 4x4 pixels, normed
//   between stages:  norm, then a convolution of 2x2 cells that halves the grid
//   scores = head(norm(mean over the cells of x_L))
//
// Every norm is a LayerNorm over the channels of a cell.
#include <torch/nn/modules/container/modulelist.h>

#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"
#include "models/base/pyramid.h"
#include "nn/convolution.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"

namespace tessera::models::convnext {
namespace {

constexpr int64_t kKernel = 7;     // cells along a side of a block's convolution
constexpr int64_t kExpansion = 4;  // hidden width of a block

struct Config : DropPathSettings {
  Value image_size = 224;
  int64_t in_channels = 3;
  int64_t patch_size = 4;
  std::vector<int64_t> dims = {96, 192, 384, 768}, depths = {3, 3, 9, 3};
  double init_values = 1e-6, last_norm_eps = 1e-6;
  bool response_norm = false;

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, between(1, 64), "side of a cell of the first stage in pixels");
    v("dims", dims, kWidth, "channels of a stage");
    v("depths", depths, kDepth, "blocks of a stage");
    v("init_values", init_values, at_least(0), "first values of layer scale, 0 = none");
    v("last_norm_eps", last_norm_eps, above(0),
      "eps of the norm before the head (transformers' layer_norm_eps)");
    v("response_norm", response_norm, "global response normalisation inside each block (V2)");
    visit_drop_path(v);
  }

  void check() const {
    extent_of(image_size, "image_size");
    if (dims.empty() || dims.size() > 8 || depths.size() != dims.size())
      fail_usage("model.dims and model.depths must have as many entries each, 1 to 8");
  }
};

// h + weight * h * N(h) + bias per channel; both are zero at first. Parameters weight, bias [width].
class ResponseNorm : public torch::nn::Module {
 public:
  explicit ResponseNorm(int64_t width) {
    weight_ = register_parameter("weight", nn::zeros({width}));
    bias_ = register_parameter("bias", nn::zeros({width}));
  }
  // Maps h [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& h) const {
    constexpr double kEps = 1e-6;
    const torch::Tensor response = torch::linalg_vector_norm(h, 2, {1, 2}, /*keepdim=*/true);
    const torch::Tensor share = response / (response.mean(-1, /*keepdim=*/true) + kEps);
    return h * (weight_ * share + 1).to(h.scalar_type()) + bias_.to(h.scalar_type());
  }

 private:
  torch::Tensor weight_, bias_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(int64_t width, bool response_norm) {
    fc1_ = register_module("fc1", nn::Linear(width, kExpansion * width));
    if (response_norm) response_ = register_module("grn", std::make_shared<ResponseNorm>(kExpansion * width));
    fc2_ = register_module("fc2", nn::Linear(kExpansion * width, width));
  }
  torch::Tensor forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue) {
    const torch::Tensor hidden = fc1_->forward_gelu(x);
    return fc2_->forward(response_ ? response_->forward(hidden) : hidden, epilogue);
  }
  int64_t macs() const { return fc1_->macs() + fc2_->macs(); }  // per cell

 private:
  nn::Linear fc1_{nullptr}, fc2_{nullptr};
  std::shared_ptr<ResponseNorm> response_;
};

class ConvNextBlock : public torch::nn::Module {
 public:
  // `index`: the block's number in the model, which keys the draws of drop path.
  ConvNextBlock(int64_t width, int64_t index, double drop_path, const Config& config)
      : index_(index), drop_path_(drop_path) {
    if (config.init_values > 0)
      gamma_ = register_parameter("gamma", nn::ones({width}).mul_(config.init_values));
    conv_ = register_module("conv_dw", nn::Conv2d(nn::Conv2dOptions{.in = width,
                                                                    .out = width,
                                                                    .kernel = kKernel,
                                                                    .padding = kKernel / 2,
                                                                    .groups = width,
                                                                    .bias = true}));
    norm_ = register_module("norm", nn::LayerNorm(width));
    mlp_ = register_module("mlp", std::make_shared<FeedForward>(width, config.response_norm));
  }

  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    return nn::residual(x, gamma_, drop_path_, is_training(), index_, context,
                        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
                          return mlp_->forward(norm_->before_linear(conv_(kept)), epilogue);
                        });
  }

  int64_t macs() const { return conv_->macs() + mlp_->macs(); }  // per cell

 private:
  int64_t index_;
  double drop_path_;
  torch::Tensor gamma_;
  nn::Conv2d conv_{nullptr};
  nn::LayerNorm norm_{nullptr};
  std::shared_ptr<FeedForward> mlp_;
};

class ConvNext final : public PyramidBackbone {
 public:
  explicit ConvNext(const Config& config) : config_(config) {
    const auto stem = register_module("stem", std::make_shared<torch::nn::Module>());
    patches_ = stem->register_module("0", nn::Conv2d(nn::Conv2dOptions{.in = config.in_channels,
                                                                       .out = config.dims[0],
                                                                       .kernel = config.patch_size,
                                                                       .stride = config.patch_size,
                                                                       .bias = true}));
    stem_norm_ = stem->register_module("1", nn::LayerNorm(config.dims[0]));
    const auto list = register_module("stages", torch::nn::ModuleList());
    const std::vector<double> rates =
        config.drop_path_rates(std::accumulate(config.depths.begin(), config.depths.end(), int64_t{0}));
    int64_t index = 0;
    for (size_t stage = 0; stage < config.dims.size(); ++stage)
      list->push_back(make_stage(stage, rates, index));
    norm_ = register_module("head", std::make_shared<torch::nn::Module>())
                ->register_module("norm", nn::LayerNorm(config.dims.back(),
                                                        nn::LayerNormOptions{.eps = config.last_norm_eps}));
  }

  int64_t embed_width() const override { return config_.dims.back(); }
  std::vector<std::string> head_names() const override { return {"head.fc"}; }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t rows = patches_->extent(height), columns = patches_->extent(width);
    int64_t total = rows * columns * patches_->macs();
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (stage > 0) {
        const nn::Conv2d& halving = halving_[stage - 1];
        rows = halving->extent(rows), columns = halving->extent(columns);
        total += rows * columns * halving->macs();
      }
      for (const auto& block : stages_[stage]) total += rows * columns * block->macs();
    }
    return total;
  }

  // The papers' V2 files and torchvision's files have additional axes of size 1.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    const auto parameters = named_parameters();
    const torch::Tensor* parameter = parameters.find(name);
    const bool vector = parameter && parameter->dim() == 1 && parameter->numel() == stored.numel();
    return vector ? stored.flatten() : torch::Tensor();
  }

  void first_values(const std::string& /*name*/, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (parameter.dim() > 1) fill.truncated_normal(0.02);
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) {
      const auto at = static_cast<size_t>(stage - 1);
      return halving_[at](halving_norms_[at](before));
    }
    const int64_t side = config_.patch_size;
    check(before.dim() == 4 && before.size(1) == config_.in_channels && before.size(2) >= side &&
              before.size(3) >= side,
          "images have shape ", before.sizes(), ", must be [batch, ", config_.in_channels,
          ", height, width], with sides of at least ", side, " pixels");
    return stem_norm_(nn::embed_patches(before, patches_->weight, patches_->bias, *cache_));
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    return stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
  }

  torch::Tensor read(const torch::Tensor& x) override { return norm_(x.mean({1, 2})); }

 private:
  std::shared_ptr<torch::nn::Module> make_stage(size_t stage, const std::vector<double>& rates,
                                                int64_t& index) {
    const auto owner = std::make_shared<torch::nn::Module>();
    const int64_t width = config_.dims[stage];
    if (stage > 0) {
      const int64_t before = config_.dims[stage - 1];
      const auto downsample = owner->register_module("downsample", std::make_shared<torch::nn::Module>());
      halving_norms_.push_back(downsample->register_module("0", nn::LayerNorm(before)));
      halving_.push_back(downsample->register_module(
          "1",
          nn::Conv2d(nn::Conv2dOptions{.in = before, .out = width, .kernel = 2, .stride = 2, .bias = true})));
    }
    const auto blocks = owner->register_module("blocks", torch::nn::ModuleList());
    stages_.emplace_back();
    for (int64_t i = 0; i < config_.depths[stage]; ++i, ++index) {
      const auto block =
          std::make_shared<ConvNextBlock>(width, index, rates[static_cast<size_t>(index)], config_);
      blocks->push_back(block);
      stages_.back().push_back(block);
      keep_block(static_cast<int64_t>(stage), block);
    }
    return owner;
  }

  Config config_;
  nn::Conv2d patches_{nullptr};
  nn::LayerNorm stem_norm_{nullptr}, norm_{nullptr};
  std::vector<nn::LayerNorm> halving_norms_;
  std::vector<nn::Conv2d> halving_;
  std::vector<std::vector<std::shared_ptr<ConvNextBlock>>> stages_;
  std::shared_ptr<ops::LinearCache> cache_ = std::make_shared<ops::LinearCache>();
};

Value size(int64_t dim, std::vector<int64_t> depths, bool second = false) {
  Value settings = table({{"dims", Value::Array{dim, 2 * dim, 4 * dim, 8 * dim}},
                          {"depths", Value::Array(depths.begin(), depths.end())}});
  if (second) merge(settings, table({{"init_values", 0.0}, {"response_norm", true}}));
  return settings;
}

}  // namespace

Family family() {
  return make_family<ConvNext, Config>(
      "convnext", "ConvNeXt and ConvNeXt V2: depthwise convolutions and an MLP in each cell, four stages",
      {
          {"convnext_atto", {}, size(40, {2, 2, 6, 2})},
          {"convnext_femto", {}, size(48, {2, 2, 6, 2})},
          {"convnext_pico", {}, size(64, {2, 2, 6, 2})},
          {"convnext_nano", {}, size(80, {2, 2, 8, 2})},
          {"convnext_tiny", {}, size(96, {3, 3, 9, 3})},
          {"convnext_small", {}, size(96, {3, 3, 27, 3})},
          {"convnext_base", {}, size(128, {3, 3, 27, 3})},
          {"convnext_large", {}, size(192, {3, 3, 27, 3})},
          {"convnext_xlarge", {}, size(256, {3, 3, 27, 3})},
          {"convnextv2_atto", {}, size(40, {2, 2, 6, 2}, true)},
          {"convnextv2_femto", {}, size(48, {2, 2, 6, 2}, true)},
          {"convnextv2_pico", {}, size(64, {2, 2, 6, 2}, true)},
          {"convnextv2_nano", {}, size(80, {2, 2, 8, 2}, true)},
          {"convnextv2_tiny", {}, size(96, {3, 3, 9, 3}, true)},
          {"convnextv2_base", {}, size(128, {3, 3, 27, 3}, true)},
          {"convnextv2_large", {}, size(192, {3, 3, 27, 3}, true)},
          {"convnextv2_huge", {}, size(352, {3, 3, 27, 3}, true)},
      });
}

}  // namespace tessera::models::convnext
