// All tables of names.
#pragma once

#include <string>
#include <vector>

#include "weights/base/name_table.h"

namespace tessera::train {

const std::vector<NameTable>& name_tables();
// The table of a program for a family or task. Null if it has none, so that names are ours.
const NameTable* find_name_table(const std::string& program, const std::string& family);
// The rows of all programs for a family, to read any file.
const NameTable& names_of_family(const std::string& family);
// One name alone by them; "" if the model computes it.
std::string our_name(const std::string& theirs, const std::string& family);

// The names of a file of a model alone, in its order.
std::vector<std::string> our_names(const std::vector<std::string>& theirs, const std::string& family);

// Returns the places of a whole file's tensors in a model of a family, whatever program wrote it: names of detectors' and
// segmenters' parts, without what is in front of names where the model was a part of something larger (wrapped_names.h).
std::vector<NamePlace> places_of(const std::vector<std::string>& theirs, const std::string& family);

}  // namespace tessera::train
