// VanillaNet (Chen et al. 2023, "VanillaNet: the power of minimalism in deep learning"). Names of parameters and
// sizes are the authors'.
//
//   training form:  x' = act(pool(norm(W_2 leaky(norm(W_1 x), slope))))      W_1, W_2: 1x1 convolutions
//   merged form:    x' = act(pool(W x + b))
//   act(z) = norm(V relu(z)), V a depthwise convolution of (2 act_num + 1)^2 cells (series activation)
//   stem:           the same with W_1 of 4x4 pixels, stride 4, and no pooling
//   scores = cls2(leaky(norm(cls1(mean over the cells of x_L)), slope))      merged: one layer
//
// Every norm is a batch norm. The slope of the leaky ReLU grows from 0 to 1 over the first epochs of a training.
// At slope 1 the layers between two poolings are linear: they merge into one, with the same numbers.
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/pyramid.h"
#include "nn/convolution.h"
#include "nn/init.h"
#include "ops/gpu.h"

namespace tessera::models::vanillanet {

enum class SlopeShape { linear, cosine };

}  // namespace tessera::models::vanillanet

template <>
struct tessera::EnumNames<tessera::models::vanillanet::SlopeShape> {
  static constexpr std::array names = {"linear", "cosine"};
};

namespace tessera::models::vanillanet {
namespace {

constexpr int64_t kStemKernel = 4;
constexpr double kEps = 1e-6;

struct Config {
  Value image_size = 224;
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {512, 1024, 2048, 4096}, strides = {2, 2, 2};
  std::vector<int64_t> ada_pool = {};
  int64_t act_num = 3;
  bool merged = false;
  int64_t head_width = 1000;
  int64_t slope_epochs = 0;
  SlopeShape slope_shape = SlopeShape::linear;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("dims", dims, kWidth, "channels of the stem and after each block");
    v("strides", strides, between(1, 16), "side of each block's pooling in cells, 1 = none");
    v("ada_pool", ada_pool, between(0, 4096),
      "blocks that pool to maps of this side, 0 = by the stride; the stem then has stride 3");
    v("act_num", act_num, between(0, 15), "cells on each side that the series activation reads");
    v("merged", merged, "the form for inference, each pair of convolutions in one");
    v("head_width", head_width, kWidth,
      "training form: channels between the two layers of the head (published: the number of classes)");
    v("slope_epochs", slope_epochs, between(0, 1 << 20),
      "epochs in which the slope grows from 0 to 1, 0 = it is 1 throughout");
    v("slope_shape", slope_shape, choice<SlopeShape>(), "growth of the slope");
  }

  void check() const {
    extent_of(image_size, "image_size");
    if (strides.empty() || strides.size() > 64 || dims.size() != strides.size() + 1)
      fail_usage("model.dims must have one entry more than model.strides, which has 1 to 64");
    if (!ada_pool.empty() && ada_pool.size() != strides.size())
      fail_usage("model.ada_pool must have as many entries as model.strides, or none");
    if (merged && slope_epochs > 0) fail_usage("model.slope_epochs goes with model.merged = false");
  }

  nn::Conv2dOptions stem() const {
    const bool adaptive = !ada_pool.empty();
    return {.in = in_channels,
            .out = dims[0],
            .kernel = kStemKernel,
            .stride = adaptive ? 3 : kStemKernel,
            .padding = adaptive ? 1 : 0,
            .bias = true};
  }
};

nn::Conv2dOptions pointwise(int64_t in, int64_t out) { return {.in = in, .out = out, .bias = true}; }

// A convolution and its batch norm, the modules "0" and "1" of a sequence.
struct NormedConvolution {
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};

  NormedConvolution() = default;
  NormedConvolution(torch::nn::Module& owner, const nn::Conv2dOptions& options, const char* first = "0",
                    const char* second = "1") {
    conv = owner.register_module(first, nn::Conv2d(options));
    norm = owner.register_module(second, nn::BatchNorm2d(options.out, nn::BatchNorm2dOptions{.eps = kEps}));
  }
  torch::Tensor operator()(const torch::Tensor& x) { return norm(conv(x)); }
};

torch::Tensor leaky(const torch::Tensor& x, double slope) {
  return slope == 1 ? x : torch::leaky_relu(x, slope);
}

std::shared_ptr<torch::nn::Module> sequence(torch::nn::Module& owner, const char* name) {
  return owner.register_module(name, std::make_shared<torch::nn::Module>());
}

// norm(V relu(x)); merged: V relu(x) + bias. Parameters weight [width, 1, side, side], bias [width] or bn.
class SeriesActivation : public torch::nn::Module {
 public:
  SeriesActivation(int64_t width, const Config& config) : padding_(config.act_num), width_(width) {
    const int64_t side = 2 * config.act_num + 1;
    weight_ = register_parameter("weight", nn::zeros({width, 1, side, side}));
    if (config.merged)
      bias_ = register_parameter("bias", nn::zeros({width}));
    else
      norm_ = register_module("bn", nn::BatchNorm2d(width, nn::BatchNorm2dOptions{.eps = kEps}));
  }
  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y =
        torch::conv2d(torch::relu(x).permute({0, 3, 1, 2}), weight_, bias_, 1, padding_, 1, width_)
            .permute({0, 2, 3, 1});
    return norm_ ? norm_(y) : y;
  }
  int64_t macs() const { return weight_.numel(); }  // per cell

 private:
  int64_t padding_, width_;
  torch::Tensor weight_, bias_;
  nn::BatchNorm2d norm_{nullptr};
};

// Returns the maxima over the `side` overlapping bins of an axis, as PyTorch's adaptive pooling places them.
torch::Tensor adaptive_maxima(const torch::Tensor& x, int64_t axis, int64_t side) {
  const int64_t cells = x.size(axis);
  std::vector<int64_t> first, last;
  int64_t longest = 1;
  for (int64_t bin = 0; bin < side; ++bin) {
    first.push_back(bin * cells / side);
    last.push_back(((bin + 1) * cells + side - 1) / side - 1);
    longest = std::max(longest, last.back() - first.back() + 1);
  }
  std::vector<torch::Tensor> taken;
  for (int64_t offset = 0; offset < longest; ++offset) {
    std::vector<int64_t> places;
    for (size_t bin = 0; bin < first.size(); ++bin)
      places.push_back(std::min(first[bin] + offset, last[bin]));
    taken.push_back(x.index_select(axis, ops::kept_on(x.device(), torch::tensor(places, torch::kInt64))));
  }
  return torch::stack(taken, 0).amax(0);
}

// Its modules are also registered in the model itself, under their published names.
class Stem : public torch::nn::Module {
 public:
  explicit Stem(const Config& config) : merged_(config.merged) {
    const int64_t width = config.dims[0];
    if (merged_) {
      const auto stem = sequence(*this, "stem");
      conv_ = stem->register_module("0", nn::Conv2d(config.stem()));
      act_ = stem->register_module("1", std::make_shared<SeriesActivation>(width, config));
      return;
    }
    first_ = NormedConvolution(*sequence(*this, "stem1"), config.stem());
    const auto second = sequence(*this, "stem2");
    second_ = NormedConvolution(*second, pointwise(width, width));
    act_ = second->register_module("2", std::make_shared<SeriesActivation>(width, config));
  }
  torch::Tensor forward(const torch::Tensor& x, double slope) {
    return act_->forward(merged_ ? conv_(x) : second_(leaky(first_(x), slope)));
  }
  int64_t extent(int64_t size) const { return (merged_ ? conv_ : first_.conv)->extent(size); }
  int64_t macs() const {  // per cell of the result
    return act_->macs() + (merged_ ? conv_->macs() : first_.conv->macs() + second_.conv->macs());
  }

 private:
  bool merged_;
  nn::Conv2d conv_{nullptr};
  NormedConvolution first_, second_;
  std::shared_ptr<SeriesActivation> act_;
};

class Block : public torch::nn::Module {
 public:
  Block(const Config& config, size_t index)
      : merged_(config.merged),
        stride_(config.strides[index]),
        side_(stride_ == 1 || config.ada_pool.empty() ? 0 : config.ada_pool[index]) {
    const int64_t in = config.dims[index], out = config.dims[index + 1];
    if (config.merged) {
      conv_ = register_module("conv", nn::Conv2d(pointwise(in, out)));
    } else {
      first_ = NormedConvolution(*sequence(*this, "conv1"), pointwise(in, in));
      second_ = NormedConvolution(*sequence(*this, "conv2"), pointwise(in, out));
    }
    act_ = register_module("act", std::make_shared<SeriesActivation>(out, config));
  }

  // Maps x [batch, rows, columns, in] to [batch, extent(rows), extent(columns), out].
  torch::Tensor forward(const torch::Tensor& x, double slope) {
    return act_->forward(pooled(merged_ ? conv_(x) : second_(leaky(first_(x), slope))));
  }
  int64_t extent(int64_t size) const { return side_ > 0 ? side_ : size / stride_; }
  int64_t macs(int64_t rows, int64_t columns) const {
    const int64_t layers = merged_ ? conv_->macs() : first_.conv->macs() + second_.conv->macs();
    return rows * columns * layers + extent(rows) * extent(columns) * act_->macs();
  }
  bool pools() const { return stride_ > 1; }

 private:
  torch::Tensor pooled(const torch::Tensor& x) const {
    if (side_ > 0) return adaptive_maxima(adaptive_maxima(x, 1, side_), 2, side_);
    if (stride_ == 1) return x;
    check(x.size(1) >= stride_ && x.size(2) >= stride_, "a map of ", x.size(1), "x", x.size(2),
          " cells is smaller than the pooling of ", stride_, ": the image is too small");
    return torch::max_pool2d(x.permute({0, 3, 1, 2}), stride_).permute({0, 2, 3, 1});
  }

  bool merged_;
  int64_t stride_, side_;
  nn::Conv2d conv_{nullptr};
  NormedConvolution first_, second_;
  std::shared_ptr<SeriesActivation> act_;
};

// A stage is the layers between two poolings. The stem is the first block of the first stage.
class VanillaNet final : public PyramidBackbone {
 public:
  explicit VanillaNet(const Config& config) : config_(config) {
    stem_ = std::make_shared<Stem>(config);
    for (const auto& part : stem_->named_children()) register_module(part.key(), part.value());
    const auto list = register_module("stages", torch::nn::ModuleList());
    int64_t stage = 0;
    keep_block(stage, stem_);
    stages_.emplace_back();
    for (size_t i = 0; i < config.strides.size(); ++i) {
      const auto block = std::make_shared<Block>(config, i);
      list->push_back(block);
      if (block->pools()) ++stage, stages_.emplace_back();
      keep_block(stage, block);
      stages_.back().push_back(block);
    }
    if (!config.merged) {
      const auto head = sequence(*this, "cls1");
      head_ = NormedConvolution(*head, pointwise(config.dims.back(), config.head_width), "2", "3");
    }
    if (config.slope_epochs > 0) slope_ = register_buffer("act_learn", torch::ones({}));
  }

  int64_t embed_width() const override { return config_.merged ? config_.dims.back() : config_.head_width; }
  std::vector<std::string> head_names() const override { return {config_.merged ? "cls.2" : "cls2.0"}; }

  // Counts the layers of this form. The authors count those of the merged form.
  int64_t macs(int64_t height, int64_t width) const override {
    int64_t rows = stem_->extent(height), columns = stem_->extent(width);
    int64_t total = rows * columns * stem_->macs();
    for (const auto& stage : stages_)
      for (const auto& block : stage) {
        total += block->macs(rows, columns);
        rows = block->extent(rows), columns = block->extent(columns);
      }
    return total + (head_.conv ? head_.conv->macs() : 0);
  }

  // Published heads are convolutions of 1x1 cells.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    const bool head = name.starts_with(head_names()[0]) && stored.dim() == 4;
    return head && stored.size(2) == 1 && stored.size(3) == 1 ? stored.flatten(1) : torch::Tensor();
  }

  void first_values(const std::string& /*name*/, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (parameter.dim() > 1) fill.truncated_normal(0.02);
  }

  bool before_step(const TrainingStep& at) override {
    if (config_.slope_epochs == 0) return false;
    const double epoch = std::floor(static_cast<double>(at.step) /
                                    static_cast<double>(std::max<int64_t>(1, at.steps_per_epoch)));
    const double share = std::min(1.0, epoch / static_cast<double>(config_.slope_epochs));
    constexpr double kPi = 3.14159265358979323846;
    slope_.fill_(config_.slope_shape == SlopeShape::linear ? share : 0.5 * (1 - std::cos(kPi * share)));
    return true;
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) return before;
    check(before.dim() == 4 && before.size(1) == config_.in_channels && before.size(2) >= kStemKernel &&
              before.size(3) >= kStemKernel,
          "images have shape ", before.sizes(), ", must be [batch, ", config_.in_channels,
          ", height, width], with sides of at least ", kStemKernel, " pixels");
    return before.permute({0, 2, 3, 1});
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x, const Context&) override {
    if (stage == 0 && index == 0) return stem_->forward(x, slope());
    const auto at = static_cast<size_t>(stage == 0 ? index - 1 : index);
    return stages_[static_cast<size_t>(stage)][at]->forward(x, slope());
  }

  torch::Tensor read(const torch::Tensor& x) override {
    const torch::Tensor mean = x.mean({1, 2}, /*keepdim=*/true);
    return (head_.conv ? leaky(head_(mean), slope()) : mean).flatten(1);
  }

 private:
  double slope() const { return slope_.defined() ? slope_.item<double>() : 1; }

  Config config_;
  std::shared_ptr<Stem> stem_;
  std::vector<std::vector<std::shared_ptr<Block>>> stages_;  // without the stem
  NormedConvolution head_;
  torch::Tensor slope_;  // undefined: 1
};

// `blocks`: the widths after the stem, as multiples of the stem's 4 * width; `pooled`: the blocks that pool.
Value size(int64_t width, const std::vector<int64_t>& blocks, const std::vector<int64_t>& pooled) {
  Value::Array dims{width}, strides;
  for (const int64_t multiple : blocks) dims.emplace_back(multiple * width);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool pools = std::find(pooled.begin(), pooled.end(), static_cast<int64_t>(i)) != pooled.end();
    strides.emplace_back(int64_t{pools ? 2 : 1});
  }
  return table({{"dims", dims}, {"strides", strides}});
}

// From 8 layers on, `between` blocks of the third stage do not pool.
Value deep(int64_t width, int64_t between) {
  std::vector<int64_t> blocks{1, 2, 4};
  blocks.insert(blocks.end(), static_cast<size_t>(between), 4);
  blocks.insert(blocks.end(), {8, 8});
  return size(width, blocks, {1, 2, 3 + between});
}

Value adaptive() {
  Value settings = deep(768, 6);
  settings.set("ada_pool", Value::Array{0, 38, 19, 0, 0, 0, 0, 0, 0, 10, 0});
  return settings;
}

}  // namespace

Family family() {
  return make_family<VanillaNet, Config>(
      "vanillanet", "VanillaNet: plain layers without shortcuts; the training form merges into half of them",
      {
          {"vanillanet_5", {}, size(512, {2, 4, 8}, {0, 1, 2})},
          {"vanillanet_6", {}, size(512, {2, 4, 8, 8}, {0, 1, 2})},
          {"vanillanet_7", {}, deep(512, 0)},
          {"vanillanet_8", {}, deep(512, 1)},
          {"vanillanet_9", {}, deep(512, 2)},
          {"vanillanet_10", {}, deep(512, 3)},
          {"vanillanet_11", {}, deep(512, 4)},
          {"vanillanet_12", {}, deep(512, 5)},
          {"vanillanet_13", {}, deep(512, 6)},
          {"vanillanet_13_x1_5", {}, deep(768, 6)},
          {"vanillanet_13_x1_5_ada_pool", {}, adaptive()},
      });
}

}  // namespace tessera::models::vanillanet
