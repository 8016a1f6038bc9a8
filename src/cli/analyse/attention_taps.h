// The layers of a model whose mixing of tokens can be analysed.
#pragma once

#include <string>
#include <vector>

#include "cli/base/analysis_input.h"

namespace tessera::cli {

struct AttentionTaps {
  std::vector<std::string> names;  // in the order of the network
  // Vision-LSTM: matrices of the cells' parallel form (ops/mlstm_mixing.h), with possibly negative weights.
  bool implicit = false;
  bool holds(const std::string& name) const;
};
// Returns the taps "….attention", else "….mixing", from a pass over one image; no names if the model has
// neither.
AttentionTaps attention_taps(const AnalysedModel& model, const torch::Tensor& image);

// "block 3" of "blocks.3.attention"; "block 3.mixing_rev" keeps a direction's name.
std::string layer_name(const std::string& tap);

}  // namespace tessera::cli
