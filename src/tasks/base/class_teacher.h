// A trained classifier that shows its scores to the one in training (task.distil.teacher).
#pragma once

#include <memory>
#include <string>

#include "tasks/base/registry.h"

namespace tessera::tasks {

class ClassTeacher {
 public:
  // On the device and in the type of the run that `setup` describes. A usage error where the teacher cannot take one of
  // its sides, or tells another number of classes apart than `classes`.
  ClassTeacher(const OpenedClassifier& opened, const TaskSetup& setup, int64_t classes);

  // Of images [images, 3, height, width] as the student sees them: [images, classes], without a graph.
  torch::Tensor scores(const torch::Tensor& images) const;
  const std::string& checksum() const { return checksum_; }

 private:
  std::shared_ptr<models::Classifier> model_;
  torch::Tensor scale_, shift_;  // its input from the student's, [1, 3, 1, 1]; undefined: the same
  std::string checksum_;
};

}  // namespace tessera::tasks
