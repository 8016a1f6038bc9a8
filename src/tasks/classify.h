// Classification: one class a picture, mixed (soft) targets, or several classes a picture.
//
// A sample is a picture with its class (or its classes); the head gives one score a class. Loss: cross
// entropy with label smoothing and class weights, or binary cross entropy a class. Metrics: top-1 and top-5
// accuracy and loss; several classes: mean average precision.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tasks/losses.h"
#include "tasks/task.h"

namespace tessera::tasks {

// A trained model that shows its scores to the one in training (Hinton et al. 2015; Touvron et al. 2021).
struct Teacher {
  std::shared_ptr<models::Backbone> model;  // in evaluation mode, on the device of training
  // Its input from the student's: x * scale + shift, a number a channel [1, 3, 1, 1]. Undefined: the same.
  torch::Tensor scale, shift;
  Distillation kind = Distillation::hard;
  double alpha = 0.5;  // share of the teacher in the loss
  double tau = 1;      // temperature of soft distillation
};

struct ClassifyConfig {
  std::string loss = "auto";   // auto (cross entropy; bce where multi-label), cross_entropy, bce
  double label_smoothing = 0;  // of training targets
  // bce: targets (mixed ones too) above it count as 1, all others as 0; DeiT III: 0.
  std::optional<double> target_threshold = {};
  std::vector<double> class_weights;  // empty = all 1
  std::shared_ptr<const Teacher> teacher = nullptr;
};

// Usage error where the loss does not go with the data.
std::unique_ptr<Task> make_classify(const ClassifyConfig& config, int64_t classes, bool multi_label);

}  // namespace tessera::tasks
