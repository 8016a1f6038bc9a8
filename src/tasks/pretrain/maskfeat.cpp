#include "tasks/pretrain/maskfeat.h"

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "tasks/base/task_kind.h"
#include "tasks/pretrain/masked_patches.h"

namespace tessera::tasks {
namespace {

// Returns the numbers of each patch of maps [batch, numbers, rows * side, columns * side] in the order number, row,
// column: [batch, rows * columns, numbers side^2].
torch::Tensor by_patch(const torch::Tensor& map, int64_t side) {
  const int64_t rows = map.size(2) / side, columns = map.size(3) / side;
  return map.unflatten(3, {columns, side})
      .unflatten(2, {rows, side})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({map.size(0), rows * columns, map.size(1) * side * side});
}

}  // namespace

torch::Tensor maskfeat_targets(const torch::Tensor& images, int64_t patch, const MaskFeatConfig& config) {
  if (config.target == MaskFeatTarget::hog) {
    const torch::Tensor histograms =
        hog(images, {.bins = config.bins, .cell = config.cell, .window = config.window});
    return by_patch(histograms.flatten(1, 2), patch / config.cell);
  }
  const torch::Tensor pixels = by_patch(images, patch);
  const torch::Tensor mean = pixels.mean(-1, true), variance = pixels.var(-1, true, true);
  return (pixels - mean) / (variance + 1e-6).sqrt();
}

MaskFeatLayers::MaskFeatLayers(int64_t width, int64_t outputs) {
  const auto list = [&](const char* name) {
    return register_module(name, std::make_shared<torch::nn::Module>());
  };
  norm_ = list("transforms")
              ->register_module("0", std::make_shared<torch::nn::Module>())
              ->register_module("0", nn::LayerNorm(width));
  layer_ = list("projections")->register_module("0", nn::Linear(width, outputs));
}
torch::Tensor MaskFeatLayers::forward(const torch::Tensor& tokens) {
  return layer_->forward(norm_->before_linear(tokens));
}
int64_t MaskFeatLayers::macs() const { return layer_->macs(); }

namespace {

class MaskFeatHead final : public MaskedHead {
 public:
  MaskFeatHead(int64_t token_width, int64_t width, int64_t outputs) : MaskedHead(token_width) {
    layers = register_module("pred_head", std::make_shared<MaskFeatLayers>(width, outputs));
  }
  std::shared_ptr<MaskFeatLayers> layers;
};

class MaskFeat final : public MaskedPatches {
 public:
  explicit MaskFeat(const TaskSetup& setup)
      : MaskedPatches(setup, "task maskfeat"), config_(read_task<MaskFeatConfig>(setup.settings)) {
    const int64_t height = rows() * patch(), width = columns() * patch();
    const bool hog = config_.target == MaskFeatTarget::hog;
    if (masker().map_stride() != patch())
      fail_usage("task maskfeat predicts each patch of model.patch_size = ", patch(),
                 ", but the last map of ", spec().name, " has cells of ", masker().map_stride(), " pixels");
    if (hog && patch() % config_.cell != 0)
      fail_usage("task.cell = ", config_.cell, ", must divide model.patch_size = ", patch());
    if (hog && config_.window > 0 && (height % config_.window != 0 || width % config_.window != 0))
      fail_usage("task.window = ", config_.window, ", must divide the image of ", height, " x ", width,
                 " pixels");
    masked_ = static_cast<int64_t>(static_cast<double>(rows() * columns()) * config_.mask_ratio);
    if (masked_ < 1)
      fail_usage("task.mask_ratio = ", shortest(config_.mask_ratio), " masks none of the ",
                 rows() * columns(), " patches");
    const int64_t cells = patch() / config_.cell;
    const int64_t outputs = 3 * (hog ? config_.bins * cells * cells : patch() * patch());
    head_ = setup.build(
        [&] { return std::make_shared<MaskFeatHead>(masker().mask_width(), masker().map_width(), outputs); });
    set_head(setup, head_);
  }

 protected:
  std::vector<int64_t> draw_mask(RandomStream& random) const override {
    return rectangle_mask(random, rows(), columns(), masked_, config_.mask_least);
  }

  torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                       const models::Context& context) override {
    const torch::Tensor map = masker().masked_map(images, mask_of(mask), /*normed=*/false, context);
    const torch::Tensor predicted = head_->layers->forward(map.flatten(2).transpose(1, 2));
    const torch::Tensor wide =
        predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
    const torch::Tensor targets = maskfeat_targets(images, patch(), config_);
    return ((wide - targets).square().mean(-1) * mask).sum(1);
  }

  int64_t head_macs() const override { return rows() * columns() * head_->layers->macs(); }

 private:
  MaskFeatConfig config_;
  int64_t masked_ = 0;
  std::shared_ptr<MaskFeatHead> head_;
};

}  // namespace

TaskKind maskfeat_kind() {
  return task_kind<MaskFeat, MaskFeatConfig>(
      "maskfeat", "masked images (MaskFeat): histograms of gradients of masked patches",
      {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
