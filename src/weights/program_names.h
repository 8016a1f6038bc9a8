// Weights of ours by the names of another program: the inverse of name_tables.h.
#pragma once

#include <string>
#include <vector>

#include "models/base/model.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// All programs that have a table.
const std::vector<std::string>& named_programs();

// The names depend on these.
struct NamedModel {
  std::string task;  // the task's name
  std::string code;  // of a detector, the program that it follows (task.code), else ""
  models::ModelSpec model;
};

// Returns the tensors of such weights by the names of a program, joined and split as it has them. The model must follow that
// program's code (task.code, model.form), since its numbers mean something else to another. Throws Error if the program has no
// such model, or no name for a tensor. Every name is read back as the tensor's.
NamedTensors as_program(const NamedTensors& ours, const std::string& program, const NamedModel& model);

}  // namespace tessera::train
