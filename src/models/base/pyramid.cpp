#include "models/base/pyramid.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace tessera::models {

void PyramidSettings::check_stages() const {
  if (dims.empty() || dims.size() > 8 || depths.size() != dims.size() || heads.size() != dims.size())
    fail_usage("model.dims, model.depths and model.heads must have as many entries each, 1 to 8");
  for (size_t i = 0; i < dims.size(); ++i) check_width(dims[i], heads[i]);
  const Extent image = extent_of(image_size, "image_size");
  check_tokens((image.height + patch_size - 1) / patch_size, (image.width + patch_size - 1) / patch_size,
               *std::max_element(dims.begin(), dims.end()));
}

std::vector<double> PyramidSettings::drop_path_rates() const {
  return DropPathSettings::drop_path_rates(std::accumulate(depths.begin(), depths.end(), int64_t{0}));
}

torch::Tensor PyramidBackbone::embed(const torch::Tensor& images, const Context& context) {
  return tap(context.taps, "embed", read(run(images, block_count(), context).back()));
}

std::vector<torch::Tensor> PyramidBackbone::features(const torch::Tensor& images,
                                                     const std::vector<int64_t>& stages,
                                                     const Context& context) {
  int64_t needed = 0;
  for (const int64_t stage : stages) {
    check(stage >= 0 && stage < block_count(), "features: there is no stage ", stage, ", the model has ",
          block_count());
    needed = std::max(needed, stage + 1);
  }
  const std::vector<torch::Tensor> left = run(images, needed, context);
  std::vector<torch::Tensor> maps;
  for (const int64_t stage : stages) maps.push_back(left[static_cast<size_t>(stage)].permute({0, 3, 1, 2}));
  return maps;
}

void PyramidBackbone::add_block(int64_t stage, const std::shared_ptr<torch::nn::Module>& block) {
  if (!list_) list_ = register_module("blocks", torch::nn::ModuleList());
  if (stage == block_count()) {
    lists_.emplace_back(torch::nn::ModuleList());
    list_->push_back(lists_.back());
  }
  lists_[static_cast<size_t>(stage)]->push_back(block);
  keep_block(stage, block);
}

void PyramidBackbone::keep_block(int64_t stage, const std::shared_ptr<torch::nn::Module>& block) {
  if (stage == block_count()) blocks_.emplace_back();
  blocks_[static_cast<size_t>(stage)].push_back(block);
}

std::vector<std::vector<torch::Tensor>> PyramidBackbone::units() const {
  std::vector<std::vector<torch::Tensor>> all;
  for (const auto& stage : blocks_)
    for (auto& unit : nn::parameters_of_each(stage)) all.push_back(std::move(unit));
  return all;
}

std::vector<torch::Tensor> PyramidBackbone::run(const torch::Tensor& images, int64_t stages,
                                                const Context& context) {
  check_condition(context, images.size(0));
  const bool recompute = checkpointing && is_training() && !context.taps;
  std::vector<torch::Tensor> left;
  for (int64_t stage = 0; stage < stages; ++stage) {
    torch::Tensor x = enter(stage, stage == 0 ? images : left.back());
    const auto& blocks = blocks_[static_cast<size_t>(stage)];
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const auto body = [this, stage, index, context](const torch::Tensor& in) {
        return run_block(stage, index, in, context);
      };
      x = nn::run_unit(
          x, {.body = body, .parameters = [&] { return blocks[i]->parameters(); }, .recompute = recompute});
      x = after_block(stage, index, x);
      tap(context.taps, "blocks." + std::to_string(stage) + "." + std::to_string(i), x);
    }
    left.push_back(leave(stage, x));
  }
  return left;
}

}  // namespace tessera::models
