#include "models/heads/segmentation_heads.h"

#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "models/heads/feature_pyramid.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

// Maps with the channels last.
torch::Tensor resized_to(const torch::Tensor& map, const torch::Tensor& other, bool align_corners) {
  if (map.size(1) == other.size(1) && map.size(2) == other.size(2)) return map;
  return channels_last(
      torch::upsample_bilinear2d(channels_first(map), {other.size(1), other.size(2)}, align_corners));
}

std::shared_ptr<ConvModule> add_to(const std::shared_ptr<torch::nn::ModuleListImpl>& list,
                                   std::vector<std::shared_ptr<ConvModule>>& keep, int64_t in, int64_t out,
                                   int64_t kernel, const nn::BatchNorm2dOptions& norm, int64_t dilation = 1) {
  keep.push_back(std::make_shared<ConvModule>(in, out, kernel, norm, dilation));
  list->push_back(keep.back());
  return keep.back();
}

}  // namespace

ConvModule::ConvModule(int64_t in, int64_t out, int64_t kernel, const nn::BatchNorm2dOptions& norm,
                       int64_t dilation) {
  conv_ = register_module(
      "conv",
      nn::Conv2d(nn::Conv2dOptions{
          .in = in, .out = out, .kernel = kernel, .padding = kernel / 2 * dilation, .dilation = dilation}));
  bn_ = register_module("bn", nn::BatchNorm2d(out, norm));
}

torch::Tensor ConvModule::forward(const torch::Tensor& x, const GatherRows& gather) {
  if (!is_training() || !gather) return nn::convolve(conv_, bn_, x);
  return torch::relu(normalise(bn_, conv_->forward(x), gather));
}

void SegmentationHead::add_scores(int64_t channels, int64_t classes, double dropout) {
  dropout_ = dropout;
  conv_seg_ = register_module("conv_seg",
                              nn::Conv2d(nn::Conv2dOptions{.in = channels, .out = classes, .bias = true}));
}

// Drops whole channels (Tompson et al. 2015), drawn for each sample by its index in the step.
torch::Tensor SegmentationHead::scores(const torch::Tensor& map, const nn::Context& context) {
  if (!is_training() || dropout_ == 0) return channels_first(conv_seg_->forward(map));
  const int64_t batch = map.size(0), channels = map.size(3);
  torch::Tensor factor = torch::zeros({batch, 1, 1, channels}, torch::kFloat32);
  auto* values = factor.mutable_data_ptr<float>();
  for (int64_t sample = 0; sample < batch; ++sample) {
    RandomStream draws(context.seed, "head dropout", context.step,
                       static_cast<uint64_t>(context.first_sample + sample));
    for (int64_t c = 0; c < channels; ++c)
      if (!draws.chance(dropout_)) values[sample * channels + c] = static_cast<float>(1 / (1 - dropout_));
  }
  return channels_first(conv_seg_->forward(map * factor.to(map.options())));
}

void SegmentationHead::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "conv_seg.weight")
                     fill.normal(0.01);
                   else if (parameter.dim() == 4)
                     fill.normal(std::sqrt(2.0 / static_cast<double>(parameter.select(1, 0).numel())));
                 });
}

UperHead::UperHead(const UperHeadOptions& options) : options_(options) {
  check(!options.in.empty(), "UperNet needs at least one map");
  const int64_t width = options.channels, last = options.in.back();
  add_scores(width, options.classes, options.dropout);
  const auto pools = register_module("psp_modules", torch::nn::ModuleList());
  for (size_t i = 0; i < options.pool_sides.size(); ++i) {
    const auto owner = std::make_shared<torch::nn::Module>();  // 0 is the pooling, which has no parameters
    pools_.push_back(owner->register_module("1", std::make_shared<ConvModule>(last, width, 1, options.norm)));
    pools->push_back(owner);
  }
  bottleneck_ = register_module(
      "bottleneck",
      std::make_shared<ConvModule>(last + std::ssize(options.pool_sides) * width, width, 3, options.norm));
  const auto lateral = register_module("lateral_convs", torch::nn::ModuleList()),
             fpn = register_module("fpn_convs", torch::nn::ModuleList());
  for (size_t i = 0; i + 1 < options.in.size(); ++i) {
    add_to(lateral, lateral_, options.in[i], width, 1, options.norm);
    add_to(fpn, fpn_, width, width, 3, options.norm);
  }
  fpn_bottleneck_ = register_module(
      "fpn_bottleneck", std::make_shared<ConvModule>(std::ssize(options.in) * width, width, 3, options.norm));
}

torch::Tensor UperHead::pooled(const torch::Tensor& map, const GatherRows& gather) {
  std::vector<torch::Tensor> parts = {map};
  for (size_t i = 0; i < pools_.size(); ++i) {
    const int64_t side = options_.pool_sides[i];
    const torch::Tensor means = channels_last(torch::adaptive_avg_pool2d(channels_first(map), {side, side}));
    parts.push_back(resized_to(pools_[i]->forward(means, gather), map, options_.align_corners));
  }
  return bottleneck_->forward(torch::cat(parts, 3), gather);
}

torch::Tensor UperHead::forward(const std::vector<torch::Tensor>& maps, const nn::Context& context,
                                const GatherRows& gather) {
  check(maps.size() == options_.in.size(), "UperNet was given ", maps.size(), " maps, must be ",
        options_.in.size());
  std::vector<torch::Tensor> levels;
  for (size_t i = 0; i < lateral_.size(); ++i)
    levels.push_back(lateral_[i]->forward(channels_last(maps[i]), gather));
  levels.push_back(pooled(channels_last(maps.back()), gather));
  for (size_t i = levels.size() - 1; i > 0; --i)
    levels[i - 1] = levels[i - 1] + resized_to(levels[i], levels[i - 1], options_.align_corners);
  std::vector<torch::Tensor> refined;
  for (size_t i = 0; i < fpn_.size(); ++i) refined.push_back(fpn_[i]->forward(levels[i], gather));
  refined.push_back(levels.back());
  for (size_t i = 1; i < refined.size(); ++i)
    refined[i] = resized_to(refined[i], refined[0], options_.align_corners);
  return scores(fpn_bottleneck_->forward(torch::cat(refined, 3), gather), context);
}

int64_t UperHead::macs(const std::vector<std::pair<int64_t, int64_t>>& sizes) const {
  const auto cells = [&](size_t level) { return sizes.at(level).first * sizes.at(level).second; };
  int64_t total = cells(sizes.size() - 1) * bottleneck_->macs();
  for (size_t i = 0; i < pools_.size(); ++i)
    total += options_.pool_sides[i] * options_.pool_sides[i] * pools_[i]->macs();
  for (size_t i = 0; i < lateral_.size(); ++i) total += cells(i) * (lateral_[i]->macs() + fpn_[i]->macs());
  return total + cells(0) * (fpn_bottleneck_->macs() + score_macs());
}

FcnHead::FcnHead(const FcnHeadOptions& options) : options_(options) {
  check(options.convolutions > 0 || options.in == options.channels, "a head without convolutions reads ",
        options.in, " channels, must be ", options.channels);
  add_scores(options.channels, options.classes, options.dropout);
  if (options.convolutions > 0) {
    const auto list = register_module("convs", torch::nn::ModuleList());
    for (int64_t i = 0; i < options.convolutions; ++i)
      add_to(list, convs_, i == 0 ? options.in : options.channels, options.channels, options.kernel,
             options.norm, options.dilation);
  }
  if (options.concat_input)
    joined_ = register_module("conv_cat",
                              std::make_shared<ConvModule>(options.in + options.channels, options.channels,
                                                           options.kernel, options.norm));
}

torch::Tensor FcnHead::forward(const std::vector<torch::Tensor>& maps, const nn::Context& context,
                               const GatherRows& gather) {
  check(options_.index < std::ssize(maps), "the head reads map ", options_.index, ", there are ",
        maps.size());
  const torch::Tensor map = channels_last(maps[static_cast<size_t>(options_.index)]);
  torch::Tensor x = map;
  for (const auto& conv : convs_) x = conv->forward(x, gather);
  if (joined_) x = joined_->forward(torch::cat({map, x}, 3), gather);
  return scores(x, context);
}

int64_t FcnHead::macs(const std::vector<std::pair<int64_t, int64_t>>& sizes) const {
  const auto& [rows, columns] = sizes.at(static_cast<size_t>(options_.index));
  int64_t a_cell = score_macs() + (joined_ ? joined_->macs() : 0);
  for (const auto& conv : convs_) a_cell += conv->macs();
  return rows * columns * a_cell;
}

}  // namespace tessera::models
