// Our weights under the names of another program: the inverse of name_tables.h.
#pragma once

#include <string>
#include <vector>

#include "models/base/model.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// Returns all programs with a table.
const std::vector<std::string>& named_programs();

// The properties of a model that determine its names.
struct NamedModel {
  std::string task;  // the task's name
  std::string code;  // for detectors, the program they follow (task.code), else ""
  models::ModelSpec model;
};

// Returns the tensors under a program's names, joined and split as in that program. The model must follow
// that program's code (task.code, model.form), since weights are not interchangeable. Throws Error if the
// program lacks the model or a name for a tensor. Verifies every name by reading it back.
NamedTensors as_program(const NamedTensors& ours, const std::string& program, const NamedModel& model);

}  // namespace tessera::train
