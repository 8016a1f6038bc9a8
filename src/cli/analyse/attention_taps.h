// The layers of a model whose mixing of tokens can be analysed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"

namespace tessera::cli {

struct AttentionTaps {
  std::vector<std::string> names;  // in the order of the network
  // Vision-LSTM: matrices of the cells' parallel form (ops/mlstm_mixing.h), with possibly negative weights.
  bool implicit = false;
  bool holds(const std::string& name) const;
};
// Returns the taps "….attention", else "….mixing", found by a pass over one image; none if the model has
// neither.
AttentionTaps attention_taps(const AnalysedModel& model, const torch::Tensor& image);

// "block 3" of "blocks.3.attention"; "block 3.mixing_rev" keeps a direction's name.
std::string layer_name(const std::string& tap);

// `tessera analyse attention --terms`: shares of content, position and cross term in attention scores.

// The terms of analysis/score_terms.h, as a table, a chart over depth and a chart over distance.
struct ScoreTermsFound {
  AnalysisSection section;
  std::vector<nlohmann::ordered_json> layers;
};
// Makes two passes over the images, `batch` at a time. Throws a usage error if the attention has no visible
// queries and keys.
ScoreTermsFound find_score_terms(const AnalysedModel& model, const AnalysedImages& images,
                                 const AttentionTaps& taps, int64_t batch);

// Adds to a sum that is undefined before its first term.
inline void add(torch::Tensor& sum, const torch::Tensor& more) { sum = sum.defined() ? sum + more : more; }

}  // namespace tessera::cli
