// What tasks that find objects have in common: the classes they know, and their batches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/base/objects.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Classes of objects by their places in the model's output, with their numbers in the files they were learned
// from.
struct ObjectClasses {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;

  // Of the training set, else of the weights, else of the validation set, which must have the same; usage errors
  // that name `who`.
  ObjectClasses(const TaskSetup& setup, std::string_view who);
  Value metadata() const;
};
// The names that metadata hold; none where they hold none.
std::vector<std::string> object_names_in(const Value& metadata);

// The ragged field of that name of the first stream.
const FieldTensor& ragged_field(const Inputs& inputs, std::string_view name);
// What each image shows of itself within the batch, from the field "extent" [batch, 4].
std::vector<models::Extent> shown_extents(const torch::Tensor& field);

}  // namespace tessera::tasks
