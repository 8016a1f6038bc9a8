// Classification: one class per image, mixed (soft) targets, or several classes per image.
//
// A sample is an image with its class or classes; the head computes one logit per class. Loss: cross entropy
// with label smoothing and class weights, or binary cross entropy per class. With a teacher: (1 - alpha) loss
// + alpha distillation. Metrics: top-1 and top-5 accuracy and loss; multi-label: mean average precision.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/transforms/mixup.h"
#include "tasks/base/losses.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class ClassifyLoss { automatic, cross_entropy, bce };

// [task.distil]: distillation from a trained model (Hinton et al. 2015; Touvron et al. 2021).
struct DistilConfig {
  std::string teacher;
  Distillation kind = Distillation::hard;
  double alpha = 0.5, tau = 1, similarities = 0;
  std::string unlabelled;
  int64_t unlabelled_batch = 0;
  template <class V>
  void visit(V& v);
};

struct ClassifyConfig {
  ClassifyLoss loss = ClassifyLoss::automatic;
  double target_threshold = -1;
  double label_smoothing = 0;
  Value class_weights = "none";
  data::MixupConfig mixup;
  DistilConfig distil;
  template <class V>
  void visit(V& v);
  void check() const;  // rules across several keys
};

TaskKind classify_kind();

// A trained classifier that teaches the one in training (task.distil.teacher).

class ClassTeacher {
 public:
  // On the device and in the dtype of the run in `setup`. Throws a usage error if the teacher does not accept
  // an image side of the run, or its number of classes is not `classes`.
  ClassTeacher(const OpenedWeights& opened, const TaskSetup& setup, int64_t classes);

  // Returns logits [images, classes], without a graph, for the student's inputs [images, 3, height, width].
  torch::Tensor scores(const torch::Tensor& images, nn::Taps* taps = nullptr) const;
  const std::string& checksum() const { return checksum_; }

 private:
  std::shared_ptr<models::Classifier> model_;
  torch::Tensor scale_, shift_;  // maps the student's input, [1, 3, 1, 1]; undefined: same normalisation
  std::string checksum_;
};

// Returns taps that keep the queries and keys of all attentions.
nn::Taps query_taps();
// Returns Q-ViT's loss over them (losses.h). `student` has the taps of consecutive parts of the teacher's batch. Throws
// a usage error if the two have other attentions, heads or tokens.
torch::Tensor tapped_similarities(const std::vector<nn::Taps>& student, const nn::Taps& teacher);

}  // namespace tessera::tasks

namespace tessera {
template <>
struct EnumNames<tasks::ClassifyLoss> {
  static constexpr std::array names = {"auto", "cross_entropy", "bce"};
};
template <>
struct EnumNames<tasks::Distillation> {
  static constexpr std::array names = {"hard", "soft", "batchmean"};
};
}  // namespace tessera

template <class V>
void tessera::tasks::DistilConfig::visit(V& v) {
  v("teacher", teacher, "weights file or run directory of a trained model, empty = none");
  v("kind", kind, choice<Distillation>(),
    "hard: the teacher's best class; soft: DeiT's; batchmean: soft, divided by the batch only");
  v("alpha", alpha, between(0, 1), "share of the teacher in the loss");
  v("tau", tau, above(0), "temperature of soft distillation");
  v("similarities", similarities, between(0, 1000),
    "factor of the distance between the teacher's similarities of queries, and of keys, and the model's "
    "(Q-ViT)");
  v("unlabelled", unlabelled, "extra images for distillation only: any kind of set, its labels unread");
  v("unlabelled_batch", unlabelled_batch, at_least(0), "of them a step, in addition to the batch");
}

template <class V>
void tessera::tasks::ClassifyConfig::visit(V& v) {
  v("loss", loss, choice<ClassifyLoss>(), "auto: cross entropy, or bce if images have several classes");
  v("target_threshold", target_threshold, below(1),
    "bce: mixed targets above it count as 1, all others as 0 (DeiT III: 0); negative = as they are");
  v("label_smoothing", label_smoothing, from_to_below(0, 1), "share of the target spread over all classes");
  v("class_weights", class_weights, "none, balanced, or one number a class");
  v("mixup", mixup, "mixup and CutMix");
  v("distil", distil, "a trained model as a teacher");
}
