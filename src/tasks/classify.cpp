#include "tasks/classify.h"

#include <algorithm>
#include <array>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "tasks/losses.h"
#include "tasks/tally.h"

namespace tessera::tasks {
namespace {

class Classify final : public Task {
 public:
  Classify(ClassifyConfig config, int64_t classes, bool multi_label)
      : config_(std::move(config)), classes_(classes), multi_label_(multi_label) {
    if (!config_.class_weights.empty()) weights_ = torch::tensor(config_.class_weights, torch::kFloat64);
  }

  std::vector<std::string> step_metrics() const override { return {"accuracy"}; }
  std::string main_metric() const override { return multi_label_ ? "map" : "top1"; }

  double weight_of(const Batch& batch) const override {
    if (!weights_.defined() || multi_label_) return Task::weight_of(batch);
    return weights_.index_select(0, batch.labels.to(torch::kCPU)).sum().item<double>();
  }

  StepOutput step(models::Backbone& model, const Batch& batch, const models::Context& context) override {
    if (config_.teacher) return distilled_step(model, batch, context);
    const torch::Tensor scores = model.forward(batch.images, context);
    return {loss(scores, batch), {{"accuracy", accuracy(scores.detach(), batch)}}};
  }

  Evaluation evaluate(models::Backbone& model, data::Loader& loader, const EvaluateOptions& options) override;

 private:
  StepOutput distilled_step(models::Backbone& model, const Batch& batch,
                            const models::Context& context) const;
  torch::Tensor loss(const torch::Tensor& scores, const Batch& batch) const;
  torch::Tensor accuracy(const torch::Tensor& scores, const Batch& batch) const;
  torch::Tensor smoothed(const torch::Tensor& targets) const;

  ClassifyConfig config_;
  int64_t classes_;
  bool multi_label_;
  torch::Tensor weights_;  // [classes] float64, undefined where all are 1
};

// Mixed targets are smoothed after mixing; the two are linear, so the order does not matter.
torch::Tensor Classify::smoothed(const torch::Tensor& targets) const {
  const double s = config_.label_smoothing;
  return s == 0 ? targets : targets * (1 - s) + s / static_cast<double>(classes_);
}

torch::Tensor Classify::loss(const torch::Tensor& raw, const Batch& batch) const {
  const torch::Tensor scores = raw.scalar_type() == torch::kFloat64 ? raw : raw.to(torch::kFloat32);
  const torch::Tensor weights = weights_.defined() ? weights_.to(scores.options()) : torch::Tensor();
  const bool soft = batch.targets.defined();
  if (config_.loss == "bce" || multi_label_) {
    SigmoidOptions options;
    options.label_smoothing = config_.label_smoothing;  // of labels; mixed targets are smoothed here
    if (soft && !multi_label_) options.target_threshold = config_.target_threshold;
    options.weight = weights;
    // Several classes a picture are yes or no each: smoothing would take from the sure no's.
    const torch::Tensor targets = soft && !multi_label_ ? smoothed(batch.targets) : batch.targets;
    return sigmoid_cross_entropy(scores, soft ? targets : batch.labels, options);
  }
  if (soft) return soft_cross_entropy(scores, smoothed(batch.targets), weights);
  const bool part = weights_.defined() && batch.mean_weight > 0;
  const torch::Tensor loss =
      cross_entropy(scores, batch.labels,
                    {.label_smoothing = config_.label_smoothing, .class_weights = weights, .sum = part});
  return part ? loss / (batch.mean_weight * static_cast<double>(batch.size())) : loss;
}

// (1 - alpha) loss of the labelled pictures + alpha distillation on all. A model with a head for the teacher
// (DeiT) uses it.
StepOutput Classify::distilled_step(models::Backbone& model, const Batch& batch,
                                    const models::Context& context) const {
  const Teacher& teacher = *config_.teacher;
  const std::vector<torch::Tensor> heads = model.forward_heads(batch.images, context);
  torch::Tensor images = batch.images, judged = heads.back();
  if (batch.unlabelled.defined() && batch.unlabelled.size(0) > 0) {  // a small piece may have none
    models::Context others = context;
    others.first_sample = batch.first_unlabelled;
    images = torch::cat({images, batch.unlabelled});
    judged = torch::cat({judged, model.forward_heads(batch.unlabelled, others).back()});
  }
  torch::Tensor shown;
  {
    const torch::NoGradGuard no_grad;
    shown = teacher.model->forward(teacher.scale.defined() ? images * teacher.scale + teacher.shift : images);
  }
  check(judged.sizes() == shown.sizes(), "the teacher gives ", shown.size(-1),
        " scores a picture, the model ", judged.size(-1));
  // The teacher's mean is over all pictures, the step's weight of this piece goes by its labelled ones.
  const double share =
      batch.labelled_share * static_cast<double>(images.size(0)) / static_cast<double>(batch.size());
  const torch::Tensor distilled =
      distillation(judged, shown.to(judged.scalar_type()), teacher.kind, teacher.tau) * share;
  return {loss(heads.front(), batch) * (1 - teacher.alpha) + distilled * teacher.alpha,
          {{"accuracy", accuracy(heads.front().detach(), batch)}}};
}

// Share of pictures whose best class is the target's; several classes: share of right decisions.
torch::Tensor Classify::accuracy(const torch::Tensor& scores, const Batch& batch) const {
  if (multi_label_) return (scores > 0).eq(batch.targets > 0.5).to(torch::kFloat32).mean();
  const torch::Tensor labels = batch.targets.defined() ? batch.targets.argmax(1) : batch.labels;
  return scores.argmax(1).eq(labels).to(torch::kFloat32).mean();
}

Evaluation Classify::evaluate(models::Backbone& model, data::Loader& loader, const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  const torch::ScalarType type = options.precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  model.to(options.device, type);
  model.eval();
  const double began = steady_seconds();
  Tally tally(classes_, multi_label_, loader.batches_per_epoch());
  int64_t whole = 0, done = 0;  // samples of all processes, and of this one
  while (auto loaded = loader.next()) {
    const int64_t before = whole;
    whole += loaded->whole;
    if (loaded->size == 0) continue;  // the last batch has fewer samples than there are processes
    const Batch batch = to_device(*loaded, options.device, options.precision);
    torch::Tensor scores;
    {
      const AutocastScope autocast(options.device, options.precision);
      scores = model.forward(batch.images);
    }
    check(scores.dim() == 2 && scores.size(0) == loaded->size && scores.size(1) == classes_,
          "the model gives ", scores.size(-1), " scores a picture, the data has ", classes_, " classes");
    tally.add(*loaded, before, scores.to(torch::kCPU, torch::kFloat32).contiguous());
    done += loaded->size;
    loader.recycle(std::move(*loaded));
    if (options.progress && !options.progress(done))
      throw Error(ErrorKind::interrupted, text("interrupted after ", done, " evaluated pictures"));
  }
  Evaluation out;
  tally.finish(options, out);
  out.seconds = steady_seconds() - began;
  return out;
}

}  // namespace

std::unique_ptr<Task> make_classify(const ClassifyConfig& config, int64_t classes, bool multi_label) {
  static const std::array<std::string, 3> known = {"auto", "cross_entropy", "bce"};
  if (std::find(known.begin(), known.end(), config.loss) == known.end())
    fail_usage("loss '", config.loss, "', must be ", join(known, ", "), did_you_mean(config.loss, known));
  if (multi_label && config.loss == "cross_entropy")
    fail_usage("loss cross_entropy needs one class a picture, the data has several: use bce");
  check(classes >= 1, "classification needs at least one class");
  check(config.class_weights.empty() || static_cast<int64_t>(config.class_weights.size()) == classes,
        "there are ", config.class_weights.size(), " class weights for ", classes, " classes");
  return std::make_unique<Classify>(config, classes, multi_label);
}

}  // namespace tessera::tasks
