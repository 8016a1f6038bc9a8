// All name tables.
#pragma once

#include <string>
#include <vector>

#include "weights/base/name_table.h"

namespace tessera::train {

const std::vector<NameTable>& name_tables();
// Returns a program's table for a family or task. Null if there is none, that is, if it uses our names.
const NameTable* find_name_table(const std::string& program, const std::string& family);
// Returns the rows of all programs for a family, to read any file.
const NameTable& names_of_family(const std::string& family);
// Translates one name with them; "" if the model computes the tensor.
std::string our_name(const std::string& theirs, const std::string& family);

// Translates the names of a file that holds only a model, in order.
std::vector<std::string> our_names(const std::vector<std::string>& theirs, const std::string& family);

// Returns the places of a whole file's tensors in a model of a family, for files of any program. Includes the
// parts of detectors and segmenters. Removes prefixes if the model was part of a larger one
// (wrapped_names.h).
std::vector<NamePlace> places_of(const std::vector<std::string>& theirs, const std::string& family);

}  // namespace tessera::train
