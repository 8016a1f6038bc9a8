// All name tables.
#pragma once

#include <string>
#include <vector>

#include "models/base/model.h"
#include "nn/named_tensors.h"
#include "weights/base/name_table.h"

namespace tessera::train {

const std::vector<NameTable>& name_tables();
// Returns a program's table for a family or task. Null if there is none because the program uses our names.
const NameTable* find_name_table(const std::string& program, const std::string& family);
// Returns the rows of all programs for a family, to read any file.
const NameTable& names_of_family(const std::string& family);
// Translates one name with them; "" if the model computes the tensor.
std::string our_name(const std::string& theirs, const std::string& family);

// Translates the names of a file that contains only a model, in order.
std::vector<std::string> our_names(const std::vector<std::string>& theirs, const std::string& family);

// Returns the places of a whole file's tensors in a model of a family, for files of any program. Includes the
// parts of detectors and segmenters. Removes prefixes if the model was part of a larger one
// (unwrap_names).
std::vector<NamePlace> places_of(const std::vector<std::string>& theirs, const std::string& family);

// Our weights under the names of another program: the inverse of name_tables.h.

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

// Tensor names in files that were saved from a larger module: Lightning ("model.blocks.0…"), MMPretrain
// ("backbone.layers.0…" next to "head…"), DataParallel ("module.…").

// Returns the name without the parts that parallel and compiled modules add: "module." at its beginning,
// "_orig_mod." and the like anywhere.
std::string without_wrappers(const std::string& name);

struct UnwrappedNames {
  std::vector<std::string> names;   // without the prefix, in the same order; "" for tensors outside the model
  std::string prefix;               // "" if the model is not wrapped
  std::vector<std::string> beside;  // original names of tensors outside the model (a loss, a teacher)
};

// Removes these parts and the prefix before the patch embedding or a ResNet's first block. It consists of "model",
// "module", "backbone", "encoder", "net" and "network", or of any words if all tensors have it. Tensors without the
// prefix are outside the model, except heads.
UnwrappedNames unwrap_names(const std::vector<std::string>& names);

}  // namespace tessera::train
