// ResNet (He et al. 2016, "Deep residual learning for image recognition"), and CLIP's form of it (Radford et
// al. 2021, Section 2.4). Parameters have the names of torchvision and timm; of OpenAI for CLIP's form.
//
//   a block:      y = relu(x + branch(x)), x through a 1x1 convolution where shapes differ (eq. 1 and 2)
//   basic:        branch = norm(conv3x3(relu(norm(conv3x3(x)))))
//   bottleneck:   branch = norm(conv1x1(relu(norm(conv3x3(relu(norm(conv1x1(x))))))))
//   stem:         convolution of 7x7 cells and max pooling, each halving the grid
//   scores = fc(mean over the cells of x_L)
//
// The 3x3 convolution of a stage's first block halves the grid (torchvision's v1.5), or its first 1x1 one as
// in the paper (`stride_first`): 4.09 and 3.8 G multiply-adds. CLIP's form has a stem of three 3x3
// convolutions, halves by averaging 2x2 cells before the 1x1 convolutions, and reads the map by attention of
// its mean. Three such convolutions and max pooling are the stem of v1c (He et al. 2019, "Bag of tricks",
// ResNet-C), which mmseg uses. One 3x3 convolution that keeps the grid is the stem for images of 32x32
// (He et al. 2016, Section 4.2). `pool_strides` halves the grid in every stage, after its first convolution at
// the size before: y = relu(norm(max of 2x2 cells(conv3x3(x)))), and the shortcut is a convolution of means. It
// learns small images in fewer epochs (recipes/cifar10/fast.toml).
#include <torch/nn/modules/container/modulelist.h>

#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/pyramid.h"
#include "nn/attention.h"
#include "nn/convolution.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/position.h"

namespace tessera::models::resnet {
namespace {

enum class BlockKind { bottleneck, basic };
enum class Stem { conv7, deep, deep_max, conv3 };
enum class Pooling { mean, attention };

}  // namespace
}  // namespace tessera::models::resnet

template <>
struct tessera::EnumNames<tessera::models::resnet::BlockKind> {
  static constexpr std::array names = {"bottleneck", "basic"};
};
template <>
struct tessera::EnumNames<tessera::models::resnet::Stem> {
  static constexpr std::array names = {"conv7", "deep", "deep_max", "conv3"};
};
template <>
struct tessera::EnumNames<tessera::models::resnet::Pooling> {
  static constexpr std::array names = {"mean", "attention"};
};

namespace tessera::models::resnet {
namespace {

constexpr int64_t kExpansion = 4;  // width of a bottleneck's output as a multiple of its inner width

struct Config : DropPathSettings {
  Value image_size = 224;
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {256, 512, 1024, 2048}, depths = {3, 4, 6, 3};
  BlockKind block = BlockKind::bottleneck;
  Stem stem = Stem::conv7;
  bool stride_first = false, average_strides = false, pool_strides = false, zero_init_last = true;
  Pooling pooling = Pooling::mean;
  int64_t heads = 32, embed_dim = 1024, output_stride = 32, stem_dim = 0;

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("dims", dims, kWidth, "output channels of a stage");
    v("depths", depths, kDepth, "blocks of a stage");
    v("block", block, choice<BlockKind>(), "two 3x3 convolutions, or one between two of 1x1");
    v("stem", stem, choice<Stem>(),
      "a 7x7 convolution and max pooling; three of 3x3 and the mean (CLIP) or max pooling (v1c); or one of "
      "3x3 at full size (images of 32x32)");
    v("stem_dim", stem_dim, kHidden,
      "output channels of the stem; 0: a quarter of dims[0], or dims[0] with block = \"basic\"");
    v("stride_first", stride_first,
      "bottlenecks: the first 1x1 convolution halves the grid (the paper, Caffe, detectron2's zoo), not the "
      "3x3 one");
    v("average_strides", average_strides, "halve the grid by means of 2x2 cells (CLIP)");
    v("pool_strides", pool_strides,
      "basic blocks: each stage halves the grid by max pooling after its first convolution");
    v("pooling", pooling, choice<Pooling>(), "the vector for the head: mean, or attention of it (CLIP)");
    v("heads", heads, kHeads, "heads of attention pooling");
    v("embed_dim", embed_dim, kWidth, "outputs of attention pooling");
    v("output_stride", output_stride, between(4, 256),
      "pixels per cell of the last map; from there on stages dilate instead of halving the grid (DC5: 16)");
    v("zero_init_last", zero_init_last, "the last norm of each block starts at 0");
    visit_drop_path(v);
  }

  void check() const {
    extent_of(image_size, "image_size");
    if (dims.empty() || dims.size() > 8 || depths.size() != dims.size())
      fail_usage("model.dims and model.depths must have as many entries each, 1 to 8");
    for (const int64_t dim : dims)
      if (block == BlockKind::bottleneck && dim % kExpansion != 0)
        fail_usage("model.dims has ", dim, ", must be multiples of ", kExpansion, " for bottlenecks");
    if (is_deep() && stem_width() % 2 != 0)
      fail_usage("the deep stem is ", stem_width(),
                 " channels wide, must be even: model.stem_dim, or a quarter of model.dims[0]");
    if (stride_first && (block == BlockKind::basic || average_strides))
      fail_usage("model.stride_first goes with bottlenecks that halve the grid by a convolution, not with ",
                 average_strides ? "model.average_strides" : "model.block = \"basic\"");
    if (pool_strides && (block != BlockKind::basic || average_strides))
      fail_usage("model.pool_strides goes with model.block = \"basic\", without model.average_strides");
    if (pooling == Pooling::attention) check_width(dims.back(), heads);
  }

  bool is_deep() const { return stem == Stem::deep || stem == Stem::deep_max; }
  int64_t stem_stride() const { return stem == Stem::conv3 ? 1 : 4; }  // pixels per cell of the first stage
  int64_t stem_width() const {
    if (stem_dim > 0) return stem_dim;
    return block == BlockKind::bottleneck ? dims[0] / kExpansion : dims[0];
  }
};

// The shortcut of a block that changes the shape: convolution 0 and norm 1.
class Downsample : public torch::nn::Module {
 public:
  Downsample(int64_t in, int64_t out, int64_t stride, bool average) : cells_(average ? stride : 1) {
    conv =
        register_module("0", nn::Conv2d(nn::Conv2dOptions{.in = in, .out = out, .stride = stride / cells_}));
    norm_ = register_module("1", nn::BatchNorm2d(out));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return nn::convolve(conv, norm_, cells_ > 1 ? nn::average_cells(x, cells_) : x, /*relu=*/false);
  }
  nn::Conv2d conv{nullptr};

 private:
  int64_t cells_;
  nn::BatchNorm2d norm_{nullptr};
};

struct BlockPlace {
  int64_t in = 0, out = 0, stride = 1, dilation = 1;
  int64_t index = 0;  // number among all blocks of the model; keys the draws of drop path
  double drop_path = 0;
};

class ResidualUnit : public torch::nn::Module {
 public:
  ResidualUnit(const BlockPlace& place, const Config& config) : place_(place) {
    const bool average = config.average_strides || config.pool_strides;
    const auto [in, out, stride, dilation, index, rate] = place;
    if (config.block == BlockKind::basic) {
      pooled_ = config.pool_strides && stride > 1;
      add(in, out, 3, pooled_ ? 1 : stride, dilation);
      add(out, out, 3, 1, dilation);
    } else {
      const int64_t inner = out / kExpansion;
      if (average) cells_ = stride;
      const bool first = config.stride_first;
      strided_ = first ? 0 : 1;
      add(in, inner, 1, first ? stride : 1, 1);
      add(inner, inner, 3, first ? 1 : stride / cells_, dilation);
      add(inner, out, 1, 1, 1);
    }
    if (stride > 1 || in != out)
      downsample_ = register_module("downsample", std::make_shared<Downsample>(in, out, stride, average));
  }

  // Maps x [batch, rows, columns, in] to [batch, rows / stride, columns / stride, out].
  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const torch::Tensor shortcut = downsample_ ? downsample_->forward(x) : x;
    torch::Tensor y = x;
    const size_t last = convs_.size() - 1;
    for (size_t i = 0; i < last; ++i)
      y = pooled_ ? torch::relu(norms_[i](greatest_of_cells(convs_[i](y))))
                  : nn::convolve(convs_[i], norms_[i], y);
    if (cells_ > 1) y = nn::average_cells(y, cells_);
    if (!is_training() || place_.drop_path == 0)
      return nn::convolve(convs_[last], norms_[last], y, /*relu=*/true, shortcut);
    return torch::relu(shortcut + kept(nn::convolve(convs_[last], norms_[last], y, false), context));
  }

  // Return the grid of the result, and the multiply-adds, for the grid of x.
  Extent grid(Extent in) const { return {half(in.height), half(in.width)}; }
  int64_t macs(Extent in) const {
    const Extent out = grid(in);
    int64_t total = downsample_ ? out.height * out.width * downsample_->conv->macs() : 0;
    for (size_t i = 0; i < convs_.size(); ++i) {
      const bool before = pooled_ ? i == 0 : cells_ > 1 ? i < 2 : i < strided_;
      const Extent at = before ? in : out;
      total += at.height * at.width * convs_[i]->macs();
    }
    return total;
  }

 private:
  void add(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation) {
    const std::string number = std::to_string(convs_.size() + 1);
    convs_.push_back(
        register_module("conv" + number, nn::Conv2d(nn::Conv2dOptions{.in = in,
                                                                      .out = out,
                                                                      .kernel = kernel,
                                                                      .stride = stride,
                                                                      .padding = kernel / 2 * dilation,
                                                                      .dilation = dilation})));
    norms_.push_back(register_module("bn" + number, nn::BatchNorm2d(out)));
  }

  int64_t half(int64_t size) const {
    return cells_ > 1 || pooled_ ? size / place_.stride : (size - 1) / place_.stride + 1;
  }

  // Keeps the branch of the samples that drop path selects. The norms' statistics are taken over all samples,
  // so all branches are computed.
  torch::Tensor kept(const torch::Tensor& branch, const Context& context) const {
    const torch::Tensor factors =
        nn::path_factors(branch.device(), branch.size(0), place_.drop_path, place_.index, context);
    return branch * factors.view({-1, 1, 1, 1}).to(branch.scalar_type());
  }

  // Returns the maxima of 2x2 cells of x [batch, rows, columns, channels].
  static torch::Tensor greatest_of_cells(const torch::Tensor& x) {
    return torch::max_pool2d(x.permute({0, 3, 1, 2}), 2).permute({0, 2, 3, 1});
  }

  BlockPlace place_;
  bool pooled_ = false;  // max pooling halves the grid after the first convolution
  int64_t cells_ = 1;    // side of the averaged cells that halve the grid, 1 = a convolution halves it
  size_t strided_ = 0;   // index of that convolution
  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm2d> norms_;
  std::shared_ptr<Downsample> downsample_;
};

// The mean of the cells attends to itself and all cells, with learned positions; its output is the vector.
class AttentionPool : public torch::nn::Module {
 public:
  AttentionPool(Extent grid, int64_t width, int64_t heads, int64_t out) : built_(grid), heads_(heads) {
    positions_ = register_parameter("positional_embedding", nn::zeros({grid.height * grid.width + 1, width}));
    k_ = register_module("k_proj", nn::Linear(width, width));
    q_ = register_module("q_proj", nn::Linear(width, width));
    v_ = register_module("v_proj", nn::Linear(width, width));
    c_ = register_module("c_proj", nn::Linear(width, out));
  }

  // Maps x [batch, rows, columns, width] to [batch, out].
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor cells = x.flatten(1, 2);
    const torch::Tensor positions = nn::resample_tokens(
        positions_.unsqueeze(0), 1, built_.height, built_.width, x.size(1), x.size(2), nn::Resample::bicubic);
    const torch::Tensor tokens = torch::cat({cells.mean(1, /*keepdim=*/true), cells}, 1) + positions;
    const auto heads = [&](const torch::Tensor& y) {
      return y.unflatten(2, {heads_, y.size(2) / heads_}).transpose(1, 2);
    };
    const torch::Tensor read =
        nn::attend(heads(q_(tokens.slice(1, 0, 1))), heads(k_(tokens)), heads(v_(tokens)));
    return c_(nn::AttentionImpl::merge(read)).squeeze(1);
  }

  torch::Tensor fit(const torch::Tensor& stored) const {
    if (stored.dim() != 2) return {};
    const torch::Tensor fitted = nn::fit_square_tokens(stored.unsqueeze(0), 1, built_.height, built_.width,
                                                       positions_.size(1), nn::Resample::bicubic);
    return fitted.defined() ? fitted.squeeze(0) : fitted;
  }

  int64_t macs(Extent grid) const {
    const int64_t tokens = grid.height * grid.width + 1, width = positions_.size(1);
    return q_->macs() + tokens * (k_->macs() + v_->macs()) + 2 * tokens * width + c_->macs();
  }

 private:
  Extent built_;
  int64_t heads_;
  torch::Tensor positions_;
  nn::Linear k_{nullptr}, q_{nullptr}, v_{nullptr}, c_{nullptr};
};

class ResNet final : public PyramidBackbone {
 public:
  explicit ResNet(const Config& config) : config_(config) {
    const int64_t width = config.stem_width();
    if (config.stem == Stem::conv7) {
      add_stem({.in = config.in_channels, .out = width, .kernel = 7, .stride = 2, .padding = 3});
    } else if (config.stem == Stem::conv3) {
      add_stem({.in = config.in_channels, .out = width, .kernel = 3, .padding = 1});
    } else {
      add_stem({.in = config.in_channels, .out = width / 2, .kernel = 3, .stride = 2, .padding = 1});
      add_stem({.in = width / 2, .out = width / 2, .kernel = 3, .padding = 1});
      add_stem({.in = width / 2, .out = width, .kernel = 3, .padding = 1});
    }
    add_stages();
    if (config.pooling == Pooling::mean) return;
    Extent grid = stem_grid(extent_of(config.image_size, "image_size"));
    for (const auto& stage : stages_)
      for (const auto& block : stage) grid = block->grid(grid);
    pool_ = register_module("attnpool", std::make_shared<AttentionPool>(grid, config.dims.back(),
                                                                        config.heads, config.embed_dim));
  }

  int64_t embed_width() const override { return pool_ ? config_.embed_dim : config_.dims.back(); }
  std::vector<std::string> head_names() const override { return {pool_ ? "head" : "fc"}; }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t total = 0;
    Extent grid{height, width};
    for (const nn::Conv2d& conv : stem_) {
      grid = {conv->extent(grid.height), conv->extent(grid.width)};
      total += grid.height * grid.width * conv->macs();
    }
    grid = stem_grid({height, width});
    for (const auto& stage : stages_)
      for (const auto& block : stage) {
        total += block->macs(grid);
        grid = block->grid(grid);
      }
    return pool_ ? total + pool_->macs(grid) : total;
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    return pool_ && name == "attnpool.positional_embedding" ? pool_->fit(stored) : torch::Tensor();
  }

  // torchvision's form: convolutions normal by fan-out, linear layers as in PyTorch. CLIP's form:
  // convolutions as in PyTorch, attention pooling normal by its width.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    const std::string last = config_.block == BlockKind::bottleneck ? ".bn3.weight" : ".bn2.weight";
    const int64_t fan_in = parameter.dim() > 1 ? parameter[0].numel() : 0;
    const auto deviation = [](int64_t fan, double gain) {
      return std::sqrt(gain / static_cast<double>(fan));
    };
    if (name.starts_with("attnpool.") && parameter.dim() > 1)
      fill.normal(deviation(config_.dims.back(), 1));
    else if (name.starts_with("attnpool."))
      fill.fan_in_uniform(config_.dims.back());
    else if (name.starts_with("fc.") || name.starts_with("head."))
      fill.fan_in_uniform(embed_width());
    else if (parameter.dim() == 4 && !config_.is_deep())
      fill.normal(deviation(parameter.select(1, 0).numel(), 2));
    else if (parameter.dim() == 4)
      fill.fan_in_uniform(fan_in);
    else if (config_.zero_init_last && name.starts_with("layer") && nn::ends_with(name, last))
      fill.constant(0);
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) return before;
    check(before.dim() == 4 && before.size(1) == config_.in_channels, "images have shape ", before.sizes(),
          ", must be [batch, ", config_.in_channels, ", height, width]");
    torch::Tensor x = before.permute({0, 2, 3, 1});
    for (size_t i = 0; i < stem_.size(); ++i) x = nn::convolve(stem_[i], stem_norms_[i], x);
    if (config_.stem == Stem::conv3) return x;
    if (config_.stem == Stem::deep) return nn::average_cells(x, 2);
    return torch::max_pool2d(x.permute({0, 3, 1, 2}), 3, 2, 1).permute({0, 2, 3, 1});
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    return stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
  }

  torch::Tensor read(const torch::Tensor& x) override { return pool_ ? pool_->forward(x) : x.mean({1, 2}); }

 private:
  void add_stem(const nn::Conv2dOptions& options) {
    const std::string number = std::to_string(stem_.size() + 1);
    stem_.push_back(register_module("conv" + number, nn::Conv2d(options)));
    stem_norms_.push_back(register_module("bn" + number, nn::BatchNorm2d(options.out)));
  }

  // Returns the grid after the stem for an image of this size.
  Extent stem_grid(Extent image) const {
    const auto size = [&](int64_t side) {
      const int64_t halved = stem_[0]->extent(side);
      if (config_.stem == Stem::conv3) return halved;
      return config_.stem == Stem::deep ? halved / 2 : (halved - 1) / 2 + 1;
    };
    return {size(image.height), size(image.width)};
  }

  void add_stages() {
    const std::vector<double> rates =
        config_.drop_path_rates(std::accumulate(config_.depths.begin(), config_.depths.end(), int64_t{0}));
    int64_t in = config_.stem_width(), index = 0, reached = config_.stem_stride(), dilation = 1;
    for (size_t stage = 0; stage < config_.dims.size(); ++stage) {
      const auto blocks = register_module("layer" + std::to_string(stage + 1), torch::nn::ModuleList());
      const int64_t before = dilation;  // as published: a stage's first block keeps the previous dilation
      int64_t stride = stage == 0 && !config_.pool_strides ? 1 : 2;
      if (reached * stride > config_.output_stride) dilation *= std::exchange(stride, 1);
      reached *= stride;
      stages_.emplace_back();
      for (int64_t i = 0; i < config_.depths[stage]; ++i, ++index) {
        const auto block =
            std::make_shared<ResidualUnit>(BlockPlace{.in = in,
                                                      .out = config_.dims[stage],
                                                      .stride = i == 0 ? stride : 1,
                                                      .dilation = i == 0 ? before : dilation,
                                                      .index = index,
                                                      .drop_path = rates[static_cast<size_t>(index)]},
                                           config_);
        in = config_.dims[stage];
        blocks->push_back(block);
        stages_.back().push_back(block);
        keep_block(static_cast<int64_t>(stage), block);
      }
    }
  }

  Config config_;
  std::vector<nn::Conv2d> stem_;
  std::vector<nn::BatchNorm2d> stem_norms_;
  std::vector<std::vector<std::shared_ptr<ResidualUnit>>> stages_;
  std::shared_ptr<AttentionPool> pool_;
};

Value::Array list(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

Value plain(BlockKind block, const std::vector<int64_t>& depths) {
  const int64_t first = block == BlockKind::basic ? 64 : 64 * kExpansion;
  return table({{"block", name_of(block)},
                {"dims", list({first, 2 * first, 4 * first, 8 * first})},
                {"depths", list(depths)}});
}

// The common backbones of mmseg have this stem.
Value deep_stem(Value settings) {
  settings.set("stem", "deep_max");
  return settings;
}

Value clip(int64_t width, const std::vector<int64_t>& depths, int64_t embed_dim, int64_t image_size = 224) {
  const int64_t first = kExpansion * width;
  return table({{"dims", list({first, 2 * first, 4 * first, 8 * first})},
                {"depths", list(depths)},
                {"stem", "deep"},
                {"average_strides", true},
                {"pooling", "attention"},
                {"heads", 8 * first / 64},
                {"embed_dim", embed_dim},
                {"image_size", image_size},
                {"classes", 0}});
}

// The preprocessing of CLIP's images.
Value clip_preprocess() {
  return table({{"crop", 1.0},
                {"mean", Value::Array{0.48145466, 0.4578275, 0.40821073}},
                {"std", Value::Array{0.26862954, 0.26130258, 0.27577711}}});
}

}  // namespace

Family family() {
  constexpr BlockKind basic = BlockKind::basic, bottleneck = BlockKind::bottleneck;
  const Value clips = clip_preprocess();
  Family family = make_family<ResNet, Config>(
      "resnet", "ResNet: residual convolutions, four stages; and CLIP's form with attention pooling",
      {
          {"resnet18", {}, plain(basic, {2, 2, 2, 2})},
          {"resnet34", {}, plain(basic, {3, 4, 6, 3})},
          {"resnet26", {}, plain(bottleneck, {2, 2, 2, 2})},
          {"resnet50", {}, plain(bottleneck, {3, 4, 6, 3})},
          {"resnet101", {}, plain(bottleneck, {3, 4, 23, 3})},
          {"resnet152", {}, plain(bottleneck, {3, 8, 36, 3})},
          {"resnet50_v1c", {}, deep_stem(plain(bottleneck, {3, 4, 6, 3}))},
          {"resnet101_v1c", {}, deep_stem(plain(bottleneck, {3, 4, 23, 3}))},
          {"resnet50_clip", {"RN50"}, clip(64, {3, 4, 6, 3}, 1024), clips},
          {"resnet101_clip", {"RN101"}, clip(64, {3, 4, 23, 3}, 512), clips},
          {"resnet50x4_clip", {"RN50x4"}, clip(80, {4, 6, 10, 6}, 640, 288), clips},
          {"resnet50x16_clip", {"RN50x16"}, clip(96, {6, 8, 18, 8}, 768, 384), clips},
          {"resnet50x64_clip", {"RN50x64"}, clip(128, {3, 15, 36, 10}, 1024, 448), clips},
      });
  family.preprocess = table({{"crop", 0.95}});
  return family;
}

}  // namespace tessera::models::resnet
