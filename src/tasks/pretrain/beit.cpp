#include "tasks/pretrain/beit.h"

#include "core/error.h"
#include "core/text.h"
#include "nn/linear.h"
#include "tasks/base/task_kind.h"
#include "tasks/pretrain/masked_patches.h"
#include "tasks/pretrain/patch_tokens.h"

namespace tessera::tasks {

torch::Tensor beit_losses(const torch::Tensor& scores, const torch::Tensor& tokens,
                          const torch::Tensor& mask) {
  const torch::Tensor places = mask.flatten().nonzero().squeeze(1);
  const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
  const torch::Tensor each = torch::nll_loss(
      torch::log_softmax(wide, 1), tokens.flatten().index_select(0, places), {}, at::Reduction::None);
  return torch::zeros({mask.size(0)}, each.options().requires_grad(false))
      .index_add(0, places.div(mask.size(1), "floor"), each);
}

namespace {

class BeitHead final : public MaskedHead {
 public:
  BeitHead(int64_t token_width, int64_t width, int64_t codes) : MaskedHead(token_width) {
    layer = register_module("lm_head", nn::Linear(width, codes));
  }
  nn::Linear layer{nullptr};
};

class Beit final : public MaskedPatches {
 public:
  explicit Beit(const TaskSetup& setup)
      : MaskedPatches(setup, "task beit"),
        config_(read_task<BeitConfig>(setup.settings)),
        tokens_(setup, config_.tokeniser, "task.tokeniser", "task.codes", config_.codes) {
    if (config_.tokeniser.empty())
      fail_usage("task beit needs task.tokeniser: weights of task dvae, or of DALL-E's encoder");
    if (masker().map_stride() != patch())
      fail_usage("task beit predicts each patch of model.patch_size = ", patch(), ", but the last map of ",
                 spec().name, " has cells of ", masker().map_stride(), " pixels");
    masked_ = static_cast<int64_t>(static_cast<double>(rows() * columns()) * config_.mask_ratio);
    if (masked_ < 1)
      fail_usage("task.mask_ratio = ", shortest(config_.mask_ratio), " masks none of the ",
                 rows() * columns(), " patches");
    head_ = setup.build([&] {
      return std::make_shared<BeitHead>(masker().mask_width(), masker().map_width(), config_.codes);
    });
    set_head(setup, head_);
  }

  std::vector<std::pair<std::string, std::string>> fingerprints() const override {
    return {{"tokeniser", tokens_.checksum()}};
  }

 protected:
  std::vector<int64_t> draw_mask(RandomStream& random) const override {
    return rectangle_mask(random, rows(), columns(), masked_, config_.mask_least);
  }

  torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                       const models::Context& context) override {
    const torch::Tensor map = masker().masked_map(images, mask_of(mask), /*normed=*/true, context);
    const torch::Tensor masked =
        map.flatten(2).transpose(1, 2).flatten(0, 1).index_select(0, mask.flatten().nonzero().squeeze(1));
    return beit_losses(head_->layer->forward(masked), tokens_(images, rows(), columns()), mask);
  }

  int64_t head_macs() const override { return masked_ * head_->layer->macs(); }

 private:
  BeitConfig config_;
  mutable PatchTokens tokens_;  // opened on first use
  int64_t masked_ = 0;
  std::shared_ptr<BeitHead> head_;
};

}  // namespace

TaskKind beit_kind() {
  return task_kind<Beit, BeitConfig>("beit", "masked images (BEiT): the tokens of masked patches",
                                     {.path_keys = {"tokeniser"}});
}

}  // namespace tessera::tasks
