// Which parameters take weight decay, and which learn more slowly.
#pragma once

#include <string>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::train {

struct ParameterGroup {
  NamedTensors parameters;
  double lr_scale = 1, weight_decay = 0;
};

// A rule of one's own: what the parameters whose names match (`pattern` as for matches()) have besides.
struct ParameterRule {
  std::string pattern;
  double lr_scale = 1;       // times the learning rate that they have otherwise
  double weight_decay = -1;  // instead of the one that they have otherwise; negative = that one

  template <class V>
  void visit(V& v) {
    v("pattern", pattern, "which parameters, such as \"head.*\"");
    v("lr_scale", lr_scale, "factor on their learning rate");
    v("weight_decay", weight_decay, "of them; negative = as without the rule");
  }
};

// Whether a pattern of the shell ("blocks.0.*") is a parameter's name.
bool matches(const std::string& pattern, const std::string& name);
// A usage error unless one of the names matches; it names the recipe's `key` and the nearest pattern or name, or else
// patterns of all names.
void require_match(const char* key, const std::string& pattern, const std::vector<std::string>& names);

struct GroupOptions {
  double weight_decay = 0.05;
  double layer_decay = 1;  // 1 = one learning rate for all
  double min_scale = 0;    // lower bound of a layer's scale
  // Names, or patterns as for matches(), that take none, besides the one-dimensional ones.
  std::vector<std::string> no_decay = {};
  // In order: factors multiply, the last decay counts. One that matches nothing is a usage error.
  std::vector<ParameterRule> rules = {};
};

// The module's trainable parameters (requires_grad) in groups of equal rate and decay; frozen ones count as
// layers too. Parameters of at most one dimension, names that end in ".bias" and the named exceptions take no
// decay; an exception that is no parameter's name is left unused (a family names a class token whether or not
// the size has one).
std::vector<ParameterGroup> make_parameter_groups(const torch::nn::Module& module,
                                                  const GroupOptions& options);
std::vector<ParameterGroup> make_parameter_groups(const NamedTensors& parameters,
                                                  const GroupOptions& options);  // frozen ones too
// The trainable parameters of groups, without groups that then hold none.
std::vector<ParameterGroup> without_frozen(std::vector<ParameterGroup> groups);

// The layer of each parameter for layer-wise decay (BEiT, MAE), from the published names: 0 is the stem
// (patch embedding, tokens, positions), then the blocks in order; a final "norm" goes with the last block, a
// stage's with the stage's last; what is left (heads, norms of a head) is the last layer.
std::vector<int64_t> layer_of_each(const std::vector<std::string>& names);

}  // namespace tessera::train
