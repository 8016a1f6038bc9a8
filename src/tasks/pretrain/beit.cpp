#include "tasks/pretrain/beit.h"

#include "core/error.h"
#include "tasks/base/task_kind.h"
#include "tasks/pretrain/patch_tokens.h"

namespace tessera::tasks {

torch::Tensor beit_losses(const torch::Tensor& scores, const torch::Tensor& tokens,
                          const torch::Tensor& mask) {
  const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
  const torch::Tensor places = masked_places(mask, scores.size(0));
  const torch::Tensor losses = torch::nll_loss(
      torch::log_softmax(wide, 1), tokens.flatten().index_select(0, places), {}, at::Reduction::None);
  return sums_by_sample(losses, places, mask);
}

namespace {

class Beit final : public MaskedRectangles {
 public:
  explicit Beit(const TaskSetup& setup) : Beit(setup, read_task<BeitConfig>(setup.settings)) {}

  std::vector<std::pair<std::string, std::string>> fingerprints() const override {
    return {{"tokeniser", tokens_.checksum()}};
  }

 protected:
  torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                       const models::Context& context) override {
    return beit_losses(predicted(images, mask, context), tokens_(images, rows(), columns()), mask);
  }

 private:
  Beit(const TaskSetup& setup, const BeitConfig& config)
      : MaskedRectangles(setup, "task beit", config.masks),
        tokens_(setup, config.tokeniser, "task.tokeniser", "task.codes", config.codes) {
    if (config.tokeniser.empty())
      fail_usage("task beit needs task.tokeniser: weights of task dvae, or of DALL-E's encoder");
    set_layer(setup, "lm_head", config.codes);
  }

  mutable PatchTokens tokens_;  // opened on first use
};

}  // namespace

TaskKind beit_kind() {
  return task_kind<Beit, BeitConfig>(
      "beit", "masked images (BEiT): the tokens of masked patches",
      {.path_keys = {"tokeniser"}, .reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
