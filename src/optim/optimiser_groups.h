// Chooses the weight decay and the learning-rate scale of each parameter.
#pragma once

#include <string>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::train {

struct ParameterGroup {
  NamedTensors parameters;
  double lr_scale = 1, weight_decay = 0;
  bool state_follows = false;  // by load_state(): until then large state on the CPU takes no memory
};

// A user's rule for the parameters that match `pattern` (see matches()).
struct ParameterRule {
  std::string pattern;
  double lr_scale = 1;       // factor on their learning rate
  double weight_decay = -1;  // replaces theirs; negative = keep theirs

  template <class V>
  void visit(V& v) {
    v("pattern", pattern, "pattern of their names, such as \"head.*\"");
    v("lr_scale", lr_scale, "factor on their learning rate");
    v("weight_decay", weight_decay, "their weight decay; negative = as without the rule");
  }
};

// True if a shell pattern ("blocks.0.*") matches a parameter's name.
bool matches(const std::string& pattern, const std::string& name);
// Throws a usage error if no name matches, with the recipe's `key` and the nearest pattern or name, or else
// patterns of all names.
void require_match(const char* key, const std::string& pattern, const std::vector<std::string>& names);

struct GroupOptions {
  double weight_decay = 0.05;
  double layer_decay = 1;  // 1 = one learning rate for all
  double min_scale = 0;    // lower bound of a layer's learning-rate scale
  // Names, or patterns as for matches(), without decay, in addition to one-dimensional parameters.
  std::vector<std::string> no_decay = {};
  // Applied in order: factors multiply, the last decay counts. Throws a usage error for a rule without match.
  std::vector<ParameterRule> rules = {};
};

// Groups the module's trainable parameters (requires_grad) by rate and decay; frozen ones still count as
// layers. Parameters of at most one dimension, names that end in ".bias", and the named exceptions get no
// decay. Exceptions without a match are ignored (a family lists a class token even for sizes without
// one).
std::vector<ParameterGroup> make_parameter_groups(const torch::nn::Module& module,
                                                  const GroupOptions& options);
std::vector<ParameterGroup> make_parameter_groups(const NamedTensors& parameters,
                                                  const GroupOptions& options);  // including frozen ones
// Returns the groups' trainable parameters, without empty groups.
std::vector<ParameterGroup> without_frozen(std::vector<ParameterGroup> groups);

// Returns each parameter's layer for layer-wise decay (BEiT, MAE), from the published names. 0 is the stem
// (patch embedding, tokens, positions), then the blocks in order. A final "norm" belongs to the last block, a
// stage's norm to the stage's last block. The rest (heads and their norms) is the last layer.
std::vector<int64_t> layer_of_each(const std::vector<std::string>& names);

}  // namespace tessera::train
