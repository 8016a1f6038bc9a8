// A trained classifier that teaches the one in training (task.distil.teacher).
#pragma once

#include <memory>
#include <string>

#include "tasks/base/registry.h"

namespace tessera::tasks {

class ClassTeacher {
 public:
  // On the device and in the dtype of the run in `setup`. Throws a usage error if the teacher does not accept
  // an input side of the run, or does not have `classes` classes.
  ClassTeacher(const OpenedWeights& opened, const TaskSetup& setup, int64_t classes);

  // Returns logits [images, classes], without a graph, for the student's inputs [images, 3, height, width].
  torch::Tensor scores(const torch::Tensor& images) const;
  const std::string& checksum() const { return checksum_; }

 private:
  std::shared_ptr<models::Classifier> model_;
  torch::Tensor scale_, shift_;  // from the student's input, [1, 3, 1, 1]; undefined: same input
  std::string checksum_;
};

}  // namespace tessera::tasks
