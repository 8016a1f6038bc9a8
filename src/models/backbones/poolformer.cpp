// PoolFormer (Yu et al. 2022, "MetaFormer is actually what you need for vision") and PoolFormerV2 (Yu et al. 2024,
// "MetaFormer baselines for vision"). Names of parameters and sizes are timm's; the paper's own files are renamed
// on loading.
//
//   a block:         y = x + s_1 * (pool(norm1(x)) - norm1(x)),  x' = y + s_2 * fc2(gelu(fc1(norm2(y))))
//   V2:              y = r_1 * x + pool(norm1(x)) - norm1(x),    x' = r_2 * y + fc2(star(fc1(norm2(y)))),
//                    star(z) = scale * relu(z)^2 + bias; r only from the third stage on
//   pool:            the mean of the 3x3 cells around each cell that are on the map
//   stem:            convolution of 7x7 pixels, stride 4; V2: then a norm
//   between stages:  V2: a norm; convolution of 3x3 cells, stride 2
//   scores = head(norm(mean over the cells of x_L))   form = "published": head(mean(norm(x_L)))
//
// norm1, norm2 and the norm of the published head are over all channels and cells of an image (group norm with
// one group), the other norms over the channels of a cell. Norms of V2 have no bias, except that of the head.
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/pyramid.h"
#include "nn/convolution.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models::poolformer {

enum class PoolFormerForm { timm, published };

}  // namespace tessera::models::poolformer

template <>
struct tessera::EnumNames<tessera::models::poolformer::PoolFormerForm> {
  static constexpr std::array names = {"timm", "published"};
};

namespace tessera::models::poolformer {
namespace {

constexpr int64_t kStemKernel = 7, kStemStride = 4, kStemPadding = 2;
constexpr double kHeadEps = 1e-6;
constexpr size_t kScaledFrom = 2;  // first stage of V2 with residual scales

struct Config : DropPathSettings {
  Value image_size = 224;
  int64_t in_channels = 3;
  std::vector<int64_t> dims = {64, 128, 320, 512}, depths = {2, 2, 6, 2};
  int64_t version = 1;
  double mlp_ratio = 4;
  int64_t pool_size = 3;
  double init_values = 1e-5;
  PoolFormerForm form = PoolFormerForm::timm;
  bool stage_norms = false;

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("dims", dims, kWidth, "channels of a stage");
    v("depths", depths, kDepth, "blocks of a stage");
    v("version", version, between(1, 2), "2: StarReLU, scaled residuals, no biases in MLPs and norms");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of a stage's channels");
    v("pool_size", pool_size, between(1, 31), "side of the pooling window in cells, odd");
    v("init_values", init_values, at_least(0), "version 1: first values of layer scale, 0 = none");
    v("form", form, choice<PoolFormerForm>(),
      "published: the head norms the map, and stages of equal width halve the grid too");
    v("stage_norms", stage_norms,
      "a norm for the map of every stage instead of the last alone (published fork_feat)");
    visit_drop_path(v);
  }

  void check() const {
    extent_of(image_size, "image_size");
    if (dims.empty() || dims.size() > 8 || depths.size() != dims.size())
      fail_usage("model.dims and model.depths must have as many entries each, 1 to 8");
    if (pool_size % 2 == 0) fail_usage("model.pool_size = ", pool_size, ", must be odd");
  }

  bool second() const { return version == 2; }
  double eps() const { return second() ? 1e-6 : 1e-5; }
  bool halves(size_t stage) const {
    return stage > 0 && (form == PoolFormerForm::published || dims[stage] != dims[stage - 1]);
  }
};

// A norm over all channels and cells of an image, or over the channels of a cell. Parameters weight and, if
// `with_bias`, bias [width].
class MapNorm : public torch::nn::Module {
 public:
  MapNorm(int64_t width, double eps, bool with_bias) : eps_(eps) {
    weight_ = register_parameter("weight", nn::ones({width}));
    if (with_bias) bias_ = register_parameter("bias", nn::zeros({width}));
  }
  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x) const {
    return torch::group_norm(x.permute({0, 3, 1, 2}), 1, weight_, bias_, eps_).permute({0, 2, 3, 1});
  }

 private:
  double eps_;
  torch::Tensor weight_, bias_;
};

// scale * relu(z)^2 + bias, for z of variance 1 of mean 0 and variance 1 at first.
class StarRelu : public torch::nn::Module {
 public:
  StarRelu() {
    scale_ = register_parameter("scale", nn::ones({1}).mul_(0.8944));
    bias_ = register_parameter("bias", nn::ones({1}).mul_(-0.4472));
  }
  torch::Tensor forward(const torch::Tensor& z) const {
    return scale_.to(z.scalar_type()) * torch::relu(z).square() + bias_.to(z.scalar_type());
  }

 private:
  torch::Tensor scale_, bias_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(int64_t width, const Config& config) {
    const auto hidden = static_cast<int64_t>(static_cast<double>(width) * config.mlp_ratio);
    const bool bias = !config.second();
    fc1_ = register_module("fc1", nn::Linear(width, hidden, bias));
    if (config.second()) act_ = register_module("act", std::make_shared<StarRelu>());
    fc2_ = register_module("fc2", nn::Linear(hidden, width, bias));
  }
  torch::Tensor forward(const torch::Tensor& x, const nn::Epilogue& epilogue = {}) {
    return fc2_->forward(act_ ? act_->forward(fc1_(x)) : fc1_->forward_gelu(x), epilogue);
  }
  int64_t macs() const { return fc1_->macs() + fc2_->macs(); }  // per cell

 private:
  nn::Linear fc1_{nullptr}, fc2_{nullptr};
  std::shared_ptr<StarRelu> act_;
};

// A factor per channel under timm's name, "scale".
torch::Tensor register_scale(torch::nn::Module& owner, const char* name, int64_t width, double first) {
  return owner.register_module(name, std::make_shared<torch::nn::Module>())
      ->register_parameter("scale", nn::ones({width}).mul_(first));
}

class PoolBlock : public torch::nn::Module {
 public:
  // `index`: the block's number in the model, which keys the draws of drop path.
  PoolBlock(int64_t width, size_t stage, int64_t index, double drop_path, const Config& config)
      : index_(index), drop_path_(drop_path), pool_size_(config.pool_size) {
    const bool layer_scale = !config.second() && config.init_values > 0;
    const bool residual_scale = config.second() && stage >= kScaledFrom;
    const auto scales = [&](const char* branch, const char* residual, torch::Tensor& of_branch,
                            torch::Tensor& of_residual) {
      if (layer_scale) of_branch = register_scale(*this, branch, width, config.init_values);
      if (residual_scale) of_residual = register_scale(*this, residual, width, 1);
    };
    norm1_ = register_module("norm1", std::make_shared<MapNorm>(width, config.eps(), !config.second()));
    scales("layer_scale1", "res_scale1", branch1_, residual1_);
    norm2_ = register_module("norm2", std::make_shared<MapNorm>(width, config.eps(), !config.second()));
    mlp_ = register_module("mlp", std::make_shared<FeedForward>(width, config));
    scales("layer_scale2", "res_scale2", branch2_, residual2_);
  }

  // Maps x [batch, rows, columns, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const torch::Tensor y = add(x, branch1_, residual1_, 2 * index_, context,
                                [&](const torch::Tensor& kept) { return mixed(norm1_->forward(kept)); });
    return add(y, branch2_, residual2_, 2 * index_ + 1, context,
               [&](const torch::Tensor& kept) { return mlp_->forward(norm2_->forward(kept)); });
  }

  int64_t macs() const { return mlp_->macs(); }  // per cell

 private:
  torch::Tensor mixed(const torch::Tensor& x) const {
    const torch::Tensor pooled =
        torch::avg_pool2d(x.permute({0, 3, 1, 2}), pool_size_, 1, pool_size_ / 2, /*ceil_mode=*/false,
                          /*count_include_pad=*/false);
    return pooled.permute({0, 2, 3, 1}) - x;
  }

  // residual * x + scale * branch(norm(x)), each factor optional. The branch reads x unscaled.
  torch::Tensor add(const torch::Tensor& x, const torch::Tensor& scale, const torch::Tensor& residual,
                    int64_t layer, const Context& context,
                    const std::function<torch::Tensor(const torch::Tensor&)>& branch) const {
    const torch::Tensor sum =
        nn::residual(x, drop_path_, is_training(), layer, context, [&](const torch::Tensor& kept) {
          const torch::Tensor out = branch(kept);
          return scale.defined() ? out * scale.to(out.scalar_type()) : out;
        });
    return residual.defined() ? sum + x * (residual.to(x.scalar_type()) - 1) : sum;
  }

  int64_t index_;
  double drop_path_;
  int64_t pool_size_;
  std::shared_ptr<MapNorm> norm1_, norm2_;
  std::shared_ptr<FeedForward> mlp_;
  torch::Tensor branch1_, branch2_, residual1_, residual2_;
};

class PoolFormer final : public PyramidBackbone {
 public:
  explicit PoolFormer(const Config& config) : config_(config) {
    const auto stem = register_module("stem", std::make_shared<torch::nn::Module>());
    stem_ = stem->register_module("conv", nn::Conv2d(nn::Conv2dOptions{.in = config.in_channels,
                                                                       .out = config.dims[0],
                                                                       .kernel = kStemKernel,
                                                                       .stride = kStemStride,
                                                                       .padding = kStemPadding,
                                                                       .bias = true}));
    if (config.second()) stem_norm_ = stem->register_module("norm", cell_norm(config.dims[0]));
    const auto list = register_module("stages", torch::nn::ModuleList());
    const std::vector<double> rates =
        config.drop_path_rates(std::accumulate(config.depths.begin(), config.depths.end(), int64_t{0}));
    int64_t index = 0;
    for (size_t stage = 0; stage < config.dims.size(); ++stage)
      list->push_back(make_stage(stage, rates, index));
    const auto head = register_module("head", std::make_shared<torch::nn::Module>());
    // The published code counts the stages and the convolutions between them together.
    for (size_t stage = 0; config.stage_norms && stage < config.dims.size(); ++stage)
      stage_norms_.push_back(
          register_module("norm" + std::to_string(2 * stage),
                          std::make_shared<MapNorm>(config.dims[stage], config.eps(), !config.second())));
    if (config.stage_norms) return;
    if (config.form == PoolFormerForm::published)
      map_norm_ = head->register_module("norm", std::make_shared<MapNorm>(embed_width(), config.eps(), true));
    else
      norm_ =
          head->register_module("norm", nn::LayerNorm(embed_width(), nn::LayerNormOptions{.eps = kHeadEps}));
  }

  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& stages,
                                      const Context& context) override {
    std::vector<torch::Tensor> maps = PyramidBackbone::features(images, stages, context);
    for (size_t i = 0; i < maps.size() && config_.stage_norms; ++i)
      maps[i] = stage_norms_[static_cast<size_t>(stages[i])]
                    ->forward(maps[i].permute({0, 2, 3, 1}))
                    .permute({0, 3, 1, 2});
    return maps;
  }

  int64_t embed_width() const override { return config_.dims.back(); }
  std::vector<std::string> head_names() const override { return {"head.fc"}; }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t rows = stem_->extent(height), columns = stem_->extent(width);
    int64_t total = rows * columns * stem_->macs();
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (const nn::Conv2d& halving = halving_[stage]) {
        rows = halving->extent(rows), columns = halving->extent(columns);
        total += rows * columns * halving->macs();
      }
      for (const auto& block : stages_[stage]) total += rows * columns * block->macs();
    }
    return total;
  }

  // The paper's files and timm's have convolutions of 1x1 cells instead of linear layers.
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    const auto parameters = named_parameters();
    const torch::Tensor* parameter = parameters.find(name);
    const bool matrix = parameter && parameter->dim() == 2 && stored.dim() == 4 && stored.size(2) == 1 &&
                        stored.size(3) == 1 && stored.numel() == parameter->numel();
    return matrix ? stored.flatten(1) : torch::Tensor();
  }

  void first_values(const std::string& /*name*/, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (parameter.dim() > 1) fill.truncated_normal(0.02);
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    const auto at = static_cast<size_t>(stage);
    if (stage > 0) {
      if (!halving_[at]) return before;
      return halving_[at](halving_norms_[at] ? halving_norms_[at](before) : before);
    }
    constexpr int64_t kLeast = kStemKernel - 2 * kStemPadding;
    check(before.dim() == 4 && before.size(1) == config_.in_channels && before.size(2) >= kLeast &&
              before.size(3) >= kLeast,
          "images have shape ", before.sizes(), ", must be [batch, ", config_.in_channels,
          ", height, width], with sides of at least ", kLeast, " pixels");
    const torch::Tensor x = stem_(before.permute({0, 2, 3, 1}));
    return stem_norm_ ? stem_norm_(x) : x;
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    return stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
  }

  torch::Tensor read(const torch::Tensor& x) override {
    if (config_.stage_norms) return stage_norms_.back()->forward(x).mean({1, 2});
    return map_norm_ ? map_norm_->forward(x).mean({1, 2}) : norm_(x.mean({1, 2}));
  }

 private:
  static nn::LayerNorm cell_norm(int64_t width) {
    return nn::LayerNorm(width, nn::LayerNormOptions{.eps = 1e-6, .bias = false});
  }

  std::shared_ptr<torch::nn::Module> make_stage(size_t stage, const std::vector<double>& rates,
                                                int64_t& index) {
    const auto owner = std::make_shared<torch::nn::Module>();
    const int64_t width = config_.dims[stage];
    halving_.emplace_back(nullptr);
    halving_norms_.emplace_back(nullptr);
    if (config_.halves(stage)) {
      const int64_t before = config_.dims[stage - 1];
      const auto downsample = owner->register_module("downsample", std::make_shared<torch::nn::Module>());
      if (config_.second()) halving_norms_.back() = downsample->register_module("norm", cell_norm(before));
      halving_.back() = downsample->register_module(
          "conv", nn::Conv2d(nn::Conv2dOptions{
                      .in = before, .out = width, .kernel = 3, .stride = 2, .padding = 1, .bias = true}));
    }
    const auto blocks = owner->register_module("blocks", torch::nn::ModuleList());
    stages_.emplace_back();
    for (int64_t i = 0; i < config_.depths[stage]; ++i, ++index) {
      const auto block =
          std::make_shared<PoolBlock>(width, stage, index, rates[static_cast<size_t>(index)], config_);
      blocks->push_back(block);
      stages_.back().push_back(block);
      keep_block(static_cast<int64_t>(stage), block);
    }
    return owner;
  }

  Config config_;
  nn::Conv2d stem_{nullptr};
  nn::LayerNorm stem_norm_{nullptr}, norm_{nullptr};
  std::shared_ptr<MapNorm> map_norm_;
  std::vector<std::shared_ptr<MapNorm>> stage_norms_;
  std::vector<nn::LayerNorm> halving_norms_;  // null: the stage keeps the grid, or has no norm before
  std::vector<nn::Conv2d> halving_;
  std::vector<std::vector<std::shared_ptr<PoolBlock>>> stages_;
};

// `pairs`: half the number of blocks in the first stage; the stages' depths have the ratio 1 : 1 : 3 : 1.
Value size(bool medium, int64_t pairs, double init_values, int64_t version) {
  const Value::Array small{64, 128, 320, 512}, wide{96, 192, 384, 768};
  Value settings = table({{"dims", medium ? wide : small},
                          {"depths", Value::Array{2 * pairs, 2 * pairs, 6 * pairs, 2 * pairs}}});
  settings.set(version == 1 ? "init_values" : "version", version == 1 ? Value(init_values) : Value(version));
  return settings;
}

Value crop(double share) { return table({{"crop", share}}); }

}  // namespace

Family family() {
  Family family = make_family<PoolFormer, Config>(
      "poolformer",
      "PoolFormer and PoolFormerV2: means of neighbouring cells instead of attention, four stages",
      {
          {"poolformer_s12", {}, size(false, 1, 1e-5, 1), crop(0.9)},
          {"poolformer_s24", {}, size(false, 2, 1e-5, 1), crop(0.9)},
          {"poolformer_s36", {}, size(false, 3, 1e-6, 1), crop(0.9)},
          {"poolformer_m36", {}, size(true, 3, 1e-6, 1), crop(0.95)},
          {"poolformer_m48", {}, size(true, 4, 1e-6, 1), crop(0.95)},
          {"poolformerv2_s12", {}, size(false, 1, 0, 2), crop(1.0)},
          {"poolformerv2_s24", {}, size(false, 2, 0, 2), crop(1.0)},
          {"poolformerv2_s36", {}, size(false, 3, 0, 2), crop(1.0)},
          {"poolformerv2_m36", {}, size(true, 3, 0, 2), crop(1.0)},
          {"poolformerv2_m48", {}, size(true, 4, 0, 2), crop(1.0)},
      });
  return family;
}

}  // namespace tessera::models::poolformer
