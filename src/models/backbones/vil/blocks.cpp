#include "models/backbones/vil/blocks.h"

#include "core/error.h"
#include "models/base/windows.h"
#include "nn/drop_path.h"

namespace tessera::models {

Norm register_scaled_norm(torch::nn::Module& owner, const char* name, const VilBlockOptions& options,
                          double eps) {
  const int64_t width = options.layer.width;
  Norm norm;
  if (options.norm == NormKind::rms)
    norm.rms = owner.register_module(name, nn::RmsNorm(width, eps));
  else
    norm.layer = owner.register_module(
        name, nn::LayerNorm(width, nn::LayerNormOptions{eps, options.norm_bias, /*residual=*/true}));
  return norm;
}

VilBlock::VilBlock(const VilBlockOptions& options, const std::vector<nn::Traversal>& directions,
                   double drop_path, int64_t index, std::string name)
    : drop_path_(drop_path), index_(index), window_(options.window), name_(std::move(name)) {
  norm_ = register_scaled_norm(*this, "norm", options, 1e-5);
  nn::MlstmLayerOptions layer = options.layer;
  layer.directions = directions;
  layer_ = register_module("layer", nn::MlstmLayer(layer));
}

torch::Tensor VilBlock::branch(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context,
                               const nn::Epilogue& epilogue) {
  if (window_ == 0) return layer_->forward(norm_.before_linear(x), grid, epilogue, context.taps, name_);
  // Each window is a separate grid; the layer's output covers the whole grid again.
  check(grid.off_grid.empty() && !epilogue.scale.defined(), name_, ": windows hold patches alone");
  const torch::Tensor normed = norm_.before_linear(x);
  const torch::Tensor windows = to_windows(normed.unflatten(1, {grid.rows, grid.columns}), window_, window_);
  const torch::Tensor mixed = layer_->forward(windows, {window_, window_}, {}, context.taps, name_);
  const torch::Tensor y = from_windows(mixed, window_, window_, grid.rows, grid.columns).flatten(1, 2);
  return epilogue.residual.defined() ? epilogue.residual + y : y;
}

torch::Tensor VilBlock::forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) {
  return nn::residual(x, {}, drop_path_, is_training(), index_, context,
                      [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
                        return branch(kept, grid, context, epilogue);
                      });
}

torch::Tensor VilBlock::step(const torch::Tensor& x, std::vector<torch::Tensor>& state) {
  ops::MlstmMixerState before;
  if (!state.empty()) before = {state[0], {state[1], state[2], state[3]}};
  const torch::Tensor y = layer_->step(norm_.before_linear(x), before, {.residual = x});
  state = {before.inputs, before.cell.c, before.cell.n, before.cell.m};
  return y;
}

VilGroup::VilGroup(const Named& blocks, bool parallel, double drop_path, int64_t index)
    : parallel_(parallel), drop_path_(drop_path), index_(index) {
  for (const auto& [name, block] : blocks) blocks_.push_back(register_module(name, block));
}

torch::Tensor VilGroup::forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) {
  if (parallel_)
    return nn::residual(x, {}, drop_path_, is_training(), index_, context,
                        [&](const torch::Tensor& kept, const nn::Epilogue& epilogue) {
                          torch::Tensor sum = blocks_[0]->branch(kept, grid, context, epilogue);
                          for (size_t i = 1; i < blocks_.size(); ++i)
                            sum = blocks_[i]->branch(kept, grid, context, {.residual = sum});
                          return sum;
                        });
  torch::Tensor y = x;
  for (const auto& block : blocks_) y = block->forward(y, grid, context);
  return y;
}

torch::Tensor VilGroup::step(const torch::Tensor& x, std::vector<torch::Tensor>& state) {
  check(!parallel_, "parallel blocks have several directions, which step() does not support");
  torch::Tensor y = x;
  std::vector<torch::Tensor> after;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto own = static_cast<std::ptrdiff_t>(i * state.size() / blocks_.size()),
               end = static_cast<std::ptrdiff_t>((i + 1) * state.size() / blocks_.size());
    std::vector<torch::Tensor> part(state.begin() + own, state.begin() + end);
    y = blocks_[i]->step(y, part);
    after.insert(after.end(), part.begin(), part.end());
  }
  state = std::move(after);
  return y;
}

std::vector<nn::MlstmLayer> VilGroup::layers() const {
  std::vector<nn::MlstmLayer> all;
  for (const auto& block : blocks_) all.push_back(block->layers()[0]);
  return all;
}

std::vector<std::shared_ptr<VilUnit>> make_units(const VilStack& stack) {
  using Layout = VilStack::Layout;
  const std::vector<nn::Traversal> ways = nn::traversals(stack.directions);
  std::vector<std::shared_ptr<VilUnit>> units;
  int64_t made = 0;  // blocks so far
  for (int64_t i = 0; i < stack.depth; ++i) {
    const double rate = stack.drop_path[static_cast<size_t>(i)];
    VilBlockOptions options = stack.block;
    options.window = stack.windows[static_cast<size_t>(i)];
    const std::string name = "blocks." + std::to_string(i);
    const auto block = [&](const std::vector<nn::Traversal>& directions, const std::string& inside) {
      return std::make_shared<VilBlock>(options, directions, rate, made++, name + inside);
    };
    const auto next_way = [&] { return ways[static_cast<size_t>(made) % ways.size()]; };
    VilGroup::Named named;
    switch (stack.layout) {
      case Layout::in_layer:
        units.push_back(block(ways, ""));
        break;
      case Layout::parallel:
        for (const nn::Traversal& way : ways) named.emplace_back(way.name(), block({way}, "." + way.name()));
        units.push_back(std::make_shared<VilGroup>(named, true, rate, i));
        break;
      case Layout::pairs:
        for (int64_t half = 0; half < 2; ++half) {
          const nn::Traversal way = next_way();
          // Two blocks of equal direction need different names.
          const std::string inside = way.name() + (ways.size() == 1 && half == 1 ? "_again" : "");
          named.emplace_back(inside, block({way}, "." + inside));
        }
        units.push_back(std::make_shared<VilGroup>(named, false, rate, i));
        break;
      case Layout::singles:
        units.push_back(block({next_way()}, ""));
        break;
    }
  }
  return units;
}

}  // namespace tessera::models
