#include "tasks/pretrain/simmim.h"

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "nn/convolution.h"
#include "tasks/base/task_kind.h"
#include "tasks/pretrain/masked_patches.h"

namespace tessera::tasks {

std::vector<int64_t> simmim_mask(const MaskUnits& units, const std::vector<int64_t>& order, int64_t masked) {
  const int64_t scale = units.scale, columns = units.columns * scale;
  std::vector<int64_t> mask(static_cast<size_t>(units.count() * scale * scale), 0);
  for (int64_t i = 0; i < masked; ++i) {
    const int64_t unit = order[static_cast<size_t>(i)];
    const int64_t top = unit / units.columns * scale, left = unit % units.columns * scale;
    for (int64_t cell = 0; cell < scale * scale; ++cell)
      mask[static_cast<size_t>((top + cell / scale) * columns + left + cell % scale)] = 1;
  }
  return mask;
}

int64_t simmim_masked(int64_t units, double ratio) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(units) * ratio));
}

torch::Tensor simmim_images(const torch::Tensor& outputs, int64_t stride) {
  const int64_t batch = outputs.size(0), rows = outputs.size(1), columns = outputs.size(2);
  return outputs.view({batch, rows, columns, 3, stride, stride})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape({batch, 3, rows * stride, columns * stride});
}

torch::Tensor simmim_errors(const torch::Tensor& predicted, const torch::Tensor& images,
                            const torch::Tensor& mask) {
  const torch::Tensor wide =
      predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
  return ((images - wide).abs().sum(1) * mask).sum({1, 2});
}

namespace {

class SimMimHead final : public MaskedHead {
 public:
  SimMimHead(int64_t token_width, int64_t width, int64_t stride) : MaskedHead(token_width) {
    layer_ =
        register_module("decoder", std::make_shared<torch::nn::Module>())
            ->register_module(
                "0", nn::Conv2d(nn::Conv2dOptions{.in = width, .out = 3 * stride * stride, .bias = true}));
  }
  torch::Tensor forward(const torch::Tensor& map) { return layer_(map.permute({0, 2, 3, 1})); }
  int64_t macs() const { return layer_->macs(); }

 private:
  nn::Conv2d layer_{nullptr};
};

class SimMim final : public MaskedPatches {
 public:
  explicit SimMim(const TaskSetup& setup)
      : MaskedPatches(setup, "task simmim"), config_(read_task<SimMimConfig>(setup.settings)) {
    const int64_t side = config_.mask_patch, height = rows() * patch(), width = columns() * patch();
    if (side % patch() != 0 || height % side != 0 || width % side != 0)
      fail_usage("task.mask_patch = ", side, ", must be a multiple of model.patch_size = ", patch(),
                 " that divides the image of ", height, " x ", width, " pixels");
    units_ = {height / side, width / side, side / patch()};
    masked_ = simmim_masked(units_.count(), config_.mask_ratio);
    if (masked_ >= units_.count())
      fail_usage("task.mask_ratio = ", shortest(config_.mask_ratio), " masks all of the ", units_.count(),
                 " units");
    head_ = setup.build([&] {
      return std::make_shared<SimMimHead>(masker().mask_width(), masker().map_width(), masker().map_stride());
    });
    set_head(setup, head_);
  }

 protected:
  std::vector<int64_t> draw_mask(RandomStream& random) const override {
    return simmim_mask(units_, random.permutation(units_.count()), masked_);
  }

  // Means over a patch's pixels and channels.
  torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                       const models::Context& context) override {
    const models::PatchMask hidden = mask_of(mask);
    const torch::Tensor map = masker().masked_map(images, hidden, /*normed=*/true, context);
    const torch::Tensor pixels = hidden.masked.repeat_interleave(patch(), 1).repeat_interleave(patch(), 2);
    return simmim_errors(simmim_images(head_->forward(map), masker().map_stride()), images, pixels) /
           static_cast<double>(3 * patch() * patch());
  }

  int64_t head_macs() const override {
    const int64_t stride = masker().map_stride();
    return rows() * patch() / stride * (columns() * patch() / stride) * head_->macs();
  }

 private:
  SimMimConfig config_;
  MaskUnits units_;
  int64_t masked_ = 0;
  std::shared_ptr<SimMimHead> head_;
};

}  // namespace

TaskKind simmim_kind() {
  return task_kind<SimMim, SimMimConfig>("simmim",
                                         "masked images (SimMIM): the pixels of masked patches by one layer",
                                         {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
