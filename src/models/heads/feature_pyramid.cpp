#include "models/heads/feature_pyramid.h"

#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "nn/units.h"

namespace tessera::models {
namespace {

void check_factors(const std::vector<double>& factors) {
  for (const double factor : factors)
    if (factor != 4 && factor != 2 && factor != 1 && factor != 0.5 && factor != 0.25)
      fail_usage("a map's factor is ", shortest(factor), ", must be 4, 2, 1, 0.5 or 0.25");
}

void check_count(size_t maps, size_t wanted, const char* who) {
  check(maps == wanted, who, " was given ", maps, " maps, must be ", wanted);
}

// Max-pools `side` x `side` cells; a smaller map is pooled over all of its cells.
torch::Tensor pooled(const torch::Tensor& map, int64_t side) {
  return torch::max_pool2d(map, {std::min(side, map.size(2)), std::min(side, map.size(3))});
}

}  // namespace

// [doubling] or [doubling, norm, GELU, doubling], named by their indices.
class Feature2Pyramid::Upsample : public torch::nn::Module {
 public:
  Upsample(int64_t width, bool twice) {
    first_ = register_module("0", nn::DoublingConvolution(width, width));
    if (!twice) return;
    norm_ = register_module("1", nn::BatchNorm2d(width));
    second_ = register_module("3", nn::DoublingConvolution(width, width));
  }
  torch::Tensor forward(const torch::Tensor& map, const GatherRows& gather) {
    const torch::Tensor x = first_->forward(channels_last(map));
    if (!second_) return channels_first(x);
    return channels_first(second_->forward(torch::gelu(normalise(norm_, x, gather))));
  }
  int64_t macs() const {  // per input cell
    return first_->macs() + (second_ ? 4 * second_->macs() : 0);
  }

 private:
  nn::DoublingConvolution first_{nullptr}, second_{nullptr};
  nn::BatchNorm2d norm_{nullptr};
};

Feature2Pyramid::Feature2Pyramid(int64_t width, const std::vector<double>& factors)
    : width_(width), factors_(factors) {
  check_factors(factors);
  const auto wants = [&](double factor) {
    return std::find(factors.begin(), factors.end(), factor) != factors.end();
  };
  if (wants(4)) four_times_ = register_module("upsample_4x", std::make_shared<Upsample>(width, true));
  if (wants(2)) twice_ = register_module("upsample_2x", std::make_shared<Upsample>(width, false));
}

std::vector<torch::Tensor> Feature2Pyramid::forward(const std::vector<torch::Tensor>& maps,
                                                    const GatherRows& gather) {
  check_count(maps.size(), factors_.size(), "Feature2Pyramid");
  std::vector<torch::Tensor> out;
  for (size_t i = 0; i < maps.size(); ++i) {
    const double factor = factors_[i];
    if (factor == 4)
      out.push_back(four_times_->forward(maps[i], gather));
    else if (factor == 2)
      out.push_back(twice_->forward(maps[i], gather));
    else if (factor == 1)
      out.push_back(maps[i]);
    else
      out.push_back(pooled(maps[i], factor == 0.5 ? 2 : 4));
  }
  return out;
}

// PyTorch's own initialisation: it counts a transposed convolution's fan-in over its outputs.
void Feature2Pyramid::initialise(uint64_t seed) {
  const int64_t fan_in = 4 * width_;
  nn::initialise(*this, seed,
                 [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (parameter.dim() == 4 || name.ends_with("0.bias") || name.ends_with("3.bias"))
                     fill.fan_in_uniform(fan_in);
                 });
}

int64_t Feature2Pyramid::macs(int64_t rows, int64_t columns) const {
  int64_t total = 0;
  for (const double factor : factors_) {
    if (factor == 4) total += rows * columns * four_times_->macs();
    if (factor == 2) total += rows * columns * twice_->macs();
  }
  return total;
}

MultiLevelNeck::MultiLevelNeck(const std::vector<int64_t>& in, int64_t out,
                               const std::vector<double>& factors)
    : out_(out), factors_(factors) {
  check_factors(factors);
  check(in.size() == factors.size() || in.size() == 1, "MultiLevelNeck has ", factors.size(),
        " factors for maps of ", in.size(), " widths");
  const auto list = [&](const char* name) { return register_module(name, torch::nn::ModuleList()); };
  const auto lateral = list("lateral_convs"), convs = list("convs");
  const auto add = [&](const std::shared_ptr<torch::nn::ModuleListImpl>& to, std::vector<nn::Conv2d>& keep,
                       const nn::Conv2dOptions& options) {
    const auto owner = std::make_shared<torch::nn::Module>();
    keep.push_back(owner->register_module("conv", nn::Conv2d(options)));
    to->push_back(owner);
  };
  for (const int64_t width : in) add(lateral, lateral_, {.in = width, .out = out, .bias = true});
  for (size_t i = 0; i < factors.size(); ++i)
    add(convs, convs_, {.in = out, .out = out, .kernel = 3, .padding = 1, .bias = true});
}

// Sizes are rounded down. Cells are sampled by the factor, not by the ratio of the rounded sizes.
std::vector<torch::Tensor> MultiLevelNeck::forward(const std::vector<torch::Tensor>& maps,
                                                   const GatherRows&) {
  check_count(maps.size(), lateral_.size(), "MultiLevelNeck");
  std::vector<torch::Tensor> out;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const size_t from = maps.size() == 1 ? 0 : i;
    torch::Tensor x = channels_first(lateral_[from]->forward(channels_last(maps[from])));
    const double factor = factors_[i];
    const auto scaled = [&](int64_t side) {
      return static_cast<int64_t>(std::floor(static_cast<double>(side) * factor));
    };
    if (factor != 1)
      x = torch::upsample_bilinear2d(x, {scaled(x.size(2)), scaled(x.size(3))}, /*align_corners=*/false,
                                     factor, factor);
    out.push_back(channels_first(convs_[i]->forward(channels_last(x))));
  }
  return out;
}

void MultiLevelNeck::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 4) fill.xavier_uniform();
  });
}

int64_t MultiLevelNeck::macs(int64_t rows, int64_t columns) const {
  int64_t total = 0;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const auto scaled = [&](int64_t side) {
      return static_cast<int64_t>(static_cast<double>(side) * factors_[i]);
    };
    total += rows * columns * lateral_[lateral_.size() == 1 ? 0 : i]->macs() +
             scaled(rows) * scaled(columns) * convs_[i]->macs();
  }
  return total;
}

namespace {

// Batch norm with the mean and variance over the samples of all processes. The samples' means and variances
// are combined in the order of the batch, so the result has the same bits for any number of processes.
torch::Tensor over_processes(nn::BatchNorm2dImpl& norm, const torch::Tensor& x, const GatherRows& gather) {
  const auto& [eps, momentum] = norm.options();
  const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  const torch::Tensor each_mean = wide.mean({1, 2}),
                      each_variance = (wide - each_mean.unsqueeze(1).unsqueeze(1)).square().mean({1, 2});
  const int64_t channels = x.size(3);
  const torch::Tensor rows =
      gather(torch::cat({each_mean, each_variance, torch::ones({x.size(0), 1}, wide.options())}, 1));
  const torch::Tensor there = rows.narrow(1, 2 * channels, 1), count = there.sum().detach();
  const torch::Tensor mean = rows.narrow(1, 0, channels).sum(0) / count;
  const torch::Tensor apart = (rows.narrow(1, 0, channels) - mean).square() * there;
  const torch::Tensor variance = (rows.narrow(1, channels, channels).sum(0) + apart.sum(0)) / count;
  if (!nn::recomputing()) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor n = count * (x.size(1) * x.size(2));
    norm.running_mean.lerp_(mean.detach().to(norm.running_mean.scalar_type()), momentum);
    norm.running_var.lerp_((variance.detach() * n / (n - 1).clamp_min(1)).to(norm.running_var.scalar_type()),
                           momentum);
  }
  return ((wide - mean) * ((variance + eps).rsqrt() * norm.weight) + norm.bias).to(x.scalar_type());
}

}  // namespace

torch::Tensor normalise(const nn::BatchNorm2d& norm, const torch::Tensor& map, const GatherRows& gather) {
  return norm->is_training() && gather ? over_processes(*norm.ptr(), map, gather) : norm.ptr()->forward(map);
}

}  // namespace tessera::models
