// The files behind a recipe, as one tree of settings: several of them laid over one another, each with what
// it is based on.
//
//   base = "other.toml"                  # beside this file, which is laid over it
//   base = ["recipe.toml", "scale.toml"] # several: the second is laid over the first
//
// What is laid over wins key by key.
#pragma once

#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::train {

// Lays settings over others, key by key; train.epochs takes train.steps back, and the other way round.
void apply_overrides(Value& base, const Value& over);

// The tree of a file (a recipe or a sweep) laid over those of its bases. Usage errors in one line: a file
// that cannot be read, a base of another type than a file name or a list of them, files based on one another
// in a circle, more than 8 levels of bases, more than 100 files.
Value read_based(const std::string& path);

// The same of several files, later ones laid over earlier ones.
Value read_based(const std::vector<std::string>& paths);

// "section.key=value", as the command line has it, as a tree of its own.
Value parse_setting(const std::string& setting);

// "" or what to write instead of a key whose section is left out: ", did you mean 'train.epochs'?".
std::string section_hint(const std::string& key);

}  // namespace tessera::train
