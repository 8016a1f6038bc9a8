#include "models/base/windows.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::models {
namespace {

int64_t windows_along(int64_t length, int64_t window) { return (length + window - 1) / window; }

}  // namespace

torch::Tensor pad_to_multiple(const torch::Tensor& x, int64_t rows, int64_t columns) {
  const int64_t below = windows_along(x.size(1), rows) * rows - x.size(1);
  const int64_t right = windows_along(x.size(2), columns) * columns - x.size(2);
  return below || right ? torch::constant_pad_nd(x, {0, 0, 0, right, 0, below}) : x;
}

torch::Tensor to_windows(const torch::Tensor& x, int64_t height, int64_t width) {
  const torch::Tensor padded = pad_to_multiple(x, height, width);
  const int64_t down = padded.size(1) / height, across = padded.size(2) / width, channels = x.size(3);
  return padded.reshape({x.size(0), down, height, across, width, channels})
      .transpose(2, 3)
      .reshape({-1, height * width, channels});
}

torch::Tensor from_windows(const torch::Tensor& windows, int64_t height, int64_t width, int64_t rows,
                           int64_t columns) {
  const int64_t down = windows_along(rows, height), across = windows_along(columns, width);
  const int64_t channels = windows.size(2), batch = windows.size(0) / (down * across);
  return windows.view({batch, down, across, height, width, channels})
      .transpose(2, 3)
      .reshape({batch, down * height, across * width, channels})
      .slice(1, 0, rows)
      .slice(2, 0, columns);
}

namespace {

bool holds(const std::vector<int64_t>& blocks, int64_t block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

}  // namespace

void WindowSettings::check_windows(int64_t depth) const {
  for (const auto& [key, blocks] :
       {std::pair{"global_blocks", &global_blocks}, {"conv_blocks", &conv_blocks}})
    for (const int64_t block : *blocks) {
      if (block < 0 || block >= depth)
        fail_usage("model.", key, " names ", block, ", there are ", depth, " blocks, counted from 0");
      if (std::count(blocks->begin(), blocks->end(), block) > 1)
        fail_usage("model.", key, " names block ", block, " more than once");
    }
}

int64_t WindowSettings::window_of(int64_t block) const {
  return holds(global_blocks, block) ? 0 : window_size;
}

bool WindowSettings::has_convs(int64_t block) const { return holds(conv_blocks, block); }

ConvBottleneck::ConvBottleneck(int64_t dim) {
  const int64_t inner = dim / 2;
  conv1_ = add("1", {.in = dim, .out = inner, .kernel = 1});
  conv2_ = add("2", {.in = inner, .out = inner, .kernel = 3, .padding = 1});
  conv3_ = add("3", {.in = inner, .out = dim, .kernel = 1});
}

nn::Conv2d ConvBottleneck::add(const std::string& number, const nn::Conv2dOptions& options) {
  nn::Conv2d conv = register_module("conv" + number, nn::Conv2d(options));
  norms_.push_back(register_module("norm" + number, nn::LayerNorm(options.out)));
  return conv;
}

torch::Tensor ConvBottleneck::forward(const torch::Tensor& x) {
  torch::Tensor y = torch::gelu(norms_[0](conv1_->forward(x)));
  y = torch::gelu(norms_[1](conv2_->forward(y)));
  return x + norms_[2](conv3_->forward(y));
}

bool ConvBottleneck::first_values(const std::string& name, const torch::Tensor& parameter,
                                  const nn::Filler& fill) {
  if (name.find(".residual.") == std::string::npos) return false;
  if (parameter.dim() == 4)
    fill.normal(std::sqrt(2.0 / static_cast<double>(parameter.select(1, 0).numel())));
  else if (nn::ends_with(name, "residual.norm3.weight"))
    fill.constant(0);
  return true;
}

int64_t window_count(int64_t rows, int64_t columns, int64_t side) {
  const auto along = [&](int64_t length) { return (length + side - 1) / side; };
  return along(rows) * along(columns);
}

}  // namespace tessera::models
