// The layers of a model whose mixing of tokens can be looked at.
#pragma once

#include <string>
#include <vector>

#include "cli/base/analysis_input.h"

namespace tessera::cli {

struct AttentionTaps {
  std::vector<std::string> names;  // in the order of the network
  // Vision-LSTM: the matrices of its cells' parallel form (ops/mlstm_mixer.h), whose weights may be negative.
  bool implicit = false;
  bool holds(const std::string& name) const;
};
// The taps "….attention", or where there is none "….mixing", from a pass over one image; no names where there is neither.
AttentionTaps attention_taps(const AnalysedModel& model, const torch::Tensor& image);

// "block 3" of "blocks.3.attention"; "block 3.mixing_rev" keeps a direction's name.
std::string layer_name(const std::string& tap);

}  // namespace tessera::cli
