#include "tasks/pretrain/mvp.h"

#include "core/error.h"
#include "tasks/base/task_kind.h"
#include "tasks/pretrain/patch_tokens.h"

namespace tessera::tasks {

torch::Tensor mvp_losses(const torch::Tensor& predicted, const torch::Tensor& targets,
                         const torch::Tensor& mask) {
  const auto unit = [](const torch::Tensor& x) {
    const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
    return wide / wide.norm(2, {-1}, true).clamp_min(1e-12);
  };
  const torch::Tensor places = masked_places(mask, predicted.size(0));
  const torch::Tensor masked = targets.detach().to(predicted.device()).flatten(0, 1).index_select(0, places);
  return sums_by_sample(1 - (unit(predicted) * unit(masked)).sum(-1), places, mask);
}

namespace {

// The trained tower, opened on first use.
class Tower {
 public:
  Tower(const TaskSetup& setup, const MvpConfig& config)
      : path_(config.teacher), width_(config.width), preprocess_(setup.preprocess), opener_(setup.opener) {}

  const std::string& checksum() {
    open();
    return opened_.checksum;
  }

  // Returns features [batch, rows * columns, width] of the student's inputs, without a graph.
  torch::Tensor operator()(const torch::Tensor& images, int64_t rows, int64_t columns) {
    const torch::NoGradGuard no_grad;
    open();
    const torch::Tensor first = model_->parameters().front();
    if (first.device() != images.device() || first.scalar_type() != images.scalar_type())
      model_->to(images.device(), images.scalar_type());
    const torch::Tensor pixels = pixels_of(images, preprocess_);
    const torch::Tensor map =
        model_->features(images_of_pixels(pixels, opened_.preprocess), {model_->block_count() - 1}).at(0);
    if (map.size(1) != width_ || map.size(2) != rows || map.size(3) != columns)
      fail_usage("task.teacher '", path_, "' gives ", map.size(2), " x ", map.size(3), " features of ",
                 map.size(1), " channels, must be ", rows, " x ", columns, " of task.width = ", width_);
    return map.flatten(2).transpose(1, 2);
  }

 private:
  void open() {
    if (model_) return;
    check(opener_ != nullptr, "task.teacher '", path_, "' cannot be opened here");
    opened_ = opener_->open(path_, preprocess_.size);
    for (const Part& trained : opened_.task->parts())
      for (const torch::Tensor& parameter : trained.module->parameters()) parameter.set_requires_grad(false);
    model_ = opened_.task->backbones().at(0).model;
  }

  std::string path_;
  int64_t width_;
  data::Preprocess preprocess_;
  std::shared_ptr<const WeightsOpener> opener_;
  OpenedWeights opened_;
  std::shared_ptr<models::Backbone> model_;
};

class Mvp final : public MaskedRectangles {
 public:
  explicit Mvp(const TaskSetup& setup) : Mvp(setup, read_task<MvpConfig>(setup.settings)) {}

  std::vector<std::pair<std::string, std::string>> fingerprints() const override {
    return {{"teacher", tower_.checksum()}};
  }

 protected:
  torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                       const models::Context& context) override {
    return mvp_losses(predicted(images, mask, context), tower_(images, rows(), columns()), mask);
  }

 private:
  Mvp(const TaskSetup& setup, const MvpConfig& config)
      : MaskedRectangles(setup, "task mvp", config.masks), tower_(setup, config) {
    if (config.teacher.empty())
      fail_usage("task mvp needs task.teacher: weights with an image tower, such as those of task clip");
    set_layer(setup, "mvp_head", config.width);
  }

  mutable Tower tower_;  // opened on first use
};

}  // namespace

TaskKind mvp_kind() {
  return task_kind<Mvp, MvpConfig>(
      "mvp", "masked images (MVP): features of CLIP's tower for masked patches",
      {.path_keys = {"teacher"}, .reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
