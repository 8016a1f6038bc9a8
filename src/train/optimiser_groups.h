// Which parameters take weight decay, and which learn more slowly.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tessera::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct ParameterGroup {
  NamedTensors parameters;
  double lr_scale = 1, weight_decay = 0;
};

struct GroupOptions {
  double weight_decay = 0.05;
  double layer_decay = 1;                  // 1 = one learning rate for all
  double min_scale = 0;                    // lower bound of a layer's scale
  std::vector<std::string> no_decay = {};  // full names that take none, besides the one-dimensional ones
};

// The module's trainable parameters (requires_grad) in groups of equal rate and decay; frozen ones count as
// layers too. Parameters of at most
// one dimension, names that end in ".bias" and the named exceptions take no decay; an exception that is no
// parameter's name is left unused (a family names a class token whether or not the size has one).
std::vector<ParameterGroup> make_parameter_groups(const torch::nn::Module& module,
                                                  const GroupOptions& options);
std::vector<ParameterGroup> make_parameter_groups(const NamedTensors& parameters,
                                                  const GroupOptions& options);

// The layer of each parameter for layer-wise decay (BEiT, MAE), from the published names: 0 is the stem
// (patch embedding, tokens, positions), then the blocks in order; a final "norm" goes with the last block, a
// stage's with the stage's last; what is left (heads, norms of a head) is the last layer.
std::vector<int64_t> layer_of_each(const std::vector<std::string>& names);

}  // namespace tessera::train
