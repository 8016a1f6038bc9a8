// Shared by tasks that find objects: their classes and batches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/base/objects.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Object classes in the order of the model's outputs, with their ids in the files of the training set.
struct ObjectClasses {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;

  // Takes the classes of the training set, else of the weights, else of the validation set. The validation
  // set must have the same classes. Usage errors begin with `who`.
  ObjectClasses(const TaskSetup& setup, std::string_view who);
  Value metadata() const;
};
// Returns the class names in metadata; empty if there are none.
std::vector<std::string> object_names_in(const Value& metadata);

// Returns the ragged field of that name in the first stream.
const FieldTensor& ragged_field(const Inputs& inputs, std::string_view name);
// Returns the extent that each image fills in the batch, from the field "extent" [batch, 4].
std::vector<models::Extent> shown_extents(const torch::Tensor& field);

}  // namespace tessera::tasks
