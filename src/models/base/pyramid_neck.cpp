#include "models/base/pyramid_neck.h"

#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

nn::Conv2dOptions conv_options(int64_t in, int64_t out, int64_t kernel, bool bias, int64_t stride) {
  return {.in = in, .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = bias};
}

// Returns every second cell of a map, starting at the first.
torch::Tensor every_second(const torch::Tensor& map) {
  return map.slice(1, 0, map.size(1), 2).slice(2, 0, map.size(2), 2);
}

torch::Tensor resized_to(const torch::Tensor& map, const torch::Tensor& finer) {
  return at::upsample_nearest2d(map.permute({0, 3, 1, 2}), {finer.size(1), finer.size(2)})
      .permute({0, 2, 3, 1});
}

}  // namespace

NormedConvImpl::NormedConvImpl(int64_t in, int64_t out, int64_t kernel, ConvNormKind norm, int64_t stride)
    : Conv2dImpl(conv_options(in, out, kernel, norm == ConvNormKind::none, stride)) {
  if (norm == ConvNormKind::layer) layer_ = register_module("norm", nn::LayerNorm(out));
  if (norm == ConvNormKind::batch) batch_ = register_module("norm", nn::BatchNorm2d(out));
}

torch::Tensor NormedConvImpl::operator()(const torch::Tensor& x) {
  const torch::Tensor y = Conv2dImpl::forward(x);
  if (layer_) return layer_(y);
  return batch_ ? batch_(y) : y;
}

Fpn::Fpn(const FpnOptions& options) : options_(options) {
  check(!options.in.empty() && options.in.size() == options.strides.size(), "a feature pyramid needs maps");
  for (size_t i = 1; i < options.strides.size(); ++i)
    if (options.strides[i] != 2 * options.strides[i - 1])
      fail_usage("a feature pyramid needs maps that halve from one to the next, strides are ",
                 options.strides[i - 1], " and ", options.strides[i]);
  torch::nn::ModuleList lateral, output, norms;
  for (const int64_t in : options.in) {
    lateral_.push_back(NormedConv(in, options.width, 1, options.norm));
    output_.push_back(NormedConv(options.width, options.width, 3, options.norm));
    lateral->push_back(lateral_.back());
    output->push_back(output_.back());
    if (!options.norm_in) continue;
    in_norms_.push_back(nn::LayerNorm(in, nn::LayerNormOptions{.eps = 1e-5}));
    norms->push_back(in_norms_.back());
  }
  if (options.norm_in) register_module("in_norm", norms);
  register_module("lateral", lateral);
  register_module("output", output);
  if (options.top != TopLevels::convolve_in && options.top != TopLevels::convolve_out) return;
  const int64_t in = options.top == TopLevels::convolve_in ? options.in.back() : options.width;
  p6_ = register_module("p6", NormedConv(in, options.width, 3, ConvNormKind::none, 2));
  p7_ = register_module("p7", NormedConv(options.width, options.width, 3, ConvNormKind::none, 2));
}

std::vector<torch::Tensor> Fpn::forward(const std::vector<torch::Tensor>& given) {
  std::vector<torch::Tensor> maps = given;
  check(maps.size() == lateral_.size(), "the feature pyramid takes ", lateral_.size(), " maps, there are ",
        maps.size());
  for (size_t i = 0; i < in_norms_.size(); ++i) maps[i] = in_norms_[i](maps[i]);
  std::vector<torch::Tensor> out(maps.size());
  torch::Tensor above;
  for (size_t i = maps.size(); i-- > 0;) {
    torch::Tensor map = (*lateral_[i])(maps[i]);
    if (above.defined()) map = map + resized_to(above, map);
    out[i] = (*output_[i])(map);
    above = map;
  }
  if (options_.top == TopLevels::pool) out.push_back(every_second(out.back()));
  if (p6_) {
    out.push_back((*p6_)(options_.top == TopLevels::convolve_in ? maps.back() : out.back()));
    out.push_back((*p7_)(torch::relu(out.back())));
  }
  return out;
}

std::vector<int64_t> Fpn::strides() const {
  std::vector<int64_t> all = options_.strides;
  const int more = options_.top == TopLevels::none ? 0 : options_.top == TopLevels::pool ? 1 : 2;
  for (int i = 0; i < more; ++i) all.push_back(2 * all.back());
  return all;
}

int64_t Fpn::macs(Extent image) const {
  int64_t total = 0;
  for (size_t i = 0; i < lateral_.size(); ++i)
    total += cells_of(image, options_.strides[i]) * (lateral_[i]->macs() + output_[i]->macs());
  const std::vector<int64_t> all = strides();
  if (p6_)
    total += cells_of(image, all[all.size() - 2]) * p6_->macs() + cells_of(image, all.back()) * p7_->macs();
  return total;
}

SimplePyramid::SimplePyramid(const SimplePyramidOptions& options) : options_(options) {
  for (const double scale : options.scales) {
    check(scale == 4 || scale == 2 || scale == 1 || scale == 0.5, "a simple pyramid has no scale ", scale);
    Level level{.scale = scale};
    auto layers = std::make_shared<torch::nn::Module>();
    int64_t number = 0, channels = options.in;
    const auto add = [&](const auto& module) {
      return layers->register_module(std::to_string(number++), module);
    };
    if (scale >= 2) {
      level.first = add(nn::DoublingConvolution(channels, options.in / 2));
      channels = options.in / 2;
    }
    if (scale == 4) {
      level.norm = add(nn::LayerNorm(channels));
      ++number;  // GELU
      level.second = add(nn::DoublingConvolution(channels, options.in / 4));
      channels = options.in / 4;
    }
    if (scale < 1) ++number;  // pooling
    level.narrow = add(NormedConv(channels, options.width, 1, options.norm));
    level.smooth = add(NormedConv(options.width, options.width, 3, options.norm));
    const auto stride = static_cast<int64_t>(static_cast<double>(options.stride) / scale);
    register_module("simfp_" + std::to_string(static_cast<int64_t>(std::log2(stride))), layers);
    levels_.push_back(level);
  }
}

std::vector<torch::Tensor> SimplePyramid::forward(const std::vector<torch::Tensor>& maps) {
  check(maps.size() == 1, "the simple pyramid takes one map, there are ", maps.size());
  std::vector<torch::Tensor> out;
  for (Level& level : levels_) {
    torch::Tensor x = maps[0];
    if (level.first) x = level.first->forward(x);
    if (level.second) x = level.second->forward(torch::gelu(level.norm(x)));
    if (level.scale < 1) x = torch::max_pool2d(x.permute({0, 3, 1, 2}), 2, 2).permute({0, 2, 3, 1});
    out.push_back((*level.smooth)((*level.narrow)(x)));
  }
  if (options_.top) out.push_back(every_second(out.back()));
  return out;
}

std::vector<int64_t> SimplePyramid::strides() const {
  std::vector<int64_t> all;
  for (const double scale : options_.scales)
    all.push_back(static_cast<int64_t>(static_cast<double>(options_.stride) / scale));
  if (options_.top) all.push_back(2 * all.back());
  return all;
}

int64_t SimplePyramid::macs(Extent image) const {
  int64_t total = 0;
  for (const Level& level : levels_) {
    const int64_t cells =
        cells_of(image, static_cast<int64_t>(static_cast<double>(options_.stride) / level.scale));
    total += cells * (level.narrow->macs() + level.smooth->macs());
    if (level.first) total += cells_of(image, options_.stride) * level.first->macs();
    if (level.second) total += 4 * cells_of(image, options_.stride) * level.second->macs();
  }
  return total;
}

}  // namespace tessera::models
