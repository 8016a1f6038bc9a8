// Combines the files of a recipe into one tree of settings: several files overlaid, each with its bases.
//
//   base = "other.toml"                  # next to this file, which is laid over it
//   base = ["recipe.toml", "scale.toml"] # several: the second is laid over the first
//
// Overlays take precedence key by key.
#pragma once

#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::train {

// Overlays settings key by key; train.epochs replaces train.steps, and vice versa.
void apply_overrides(Value& base, const Value& over);

// Returns the tree of a file (a recipe or a sweep) laid over those of its bases. Throws one-line usage
// errors: an unreadable file, a base that is not a file name or a list of them, a cycle of bases, more than 8
// levels of bases, more than 100 files.
Value read_based(const std::string& path);

// Overlays several files, later ones over earlier ones.
Value read_based(const std::vector<std::string>& paths);

// Parses "section.key=value" from the command line into a tree.
Value parse_setting(const std::string& setting);

// Throws a usage error if the settings of one command line contain both train.epochs and train.steps, other than 0.
// In different layers the last one counts.
void check_one_length(const std::vector<std::string>& settings);

// Returns a hint for a key without its section: ", did you mean 'train.epochs'?"; else "".
std::string section_hint(const std::string& key);

}  // namespace tessera::train
