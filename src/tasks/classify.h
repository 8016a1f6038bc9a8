// Classification: one class a picture, mixed (soft) targets, or several classes a picture.
//
// A sample is a picture with its class (or its classes); the head gives one score a class. Loss: cross
// entropy with label smoothing and class weights, or binary cross entropy a class. Metrics: top-1 and top-5
// accuracy and loss; several classes: mean average precision.
#pragma once

#include <memory>
#include <vector>

#include "tasks/task.h"

namespace tessera::tasks {

struct ClassifyConfig {
  std::string loss = "auto";          // auto (cross entropy; bce where multi-label), cross_entropy, bce
  double label_smoothing = 0;         // of training targets
  std::vector<double> class_weights;  // empty = all 1
};

// Usage error where the loss does not go with the data.
std::unique_ptr<Task> make_classify(const ClassifyConfig& config, int64_t classes, bool multi_label);

// Class probabilities of scores [samples, classes]: softmax, or a sigmoid each where multi-label.
torch::Tensor probabilities(const torch::Tensor& scores, bool multi_label);

}  // namespace tessera::tasks
