// `tessera analyse attention --terms`: how much of attention's scores is content, position, and one for the other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/analyse/attention_taps.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"

namespace tessera::cli {

// The terms of analysis/score_terms.h: a table, a chart by depth and one by distance; the same numbers for each tap.
struct ScoreTermsFound {
  AnalysisSection section;
  std::vector<nlohmann::ordered_json> layers;
};
// Makes two passes over the images, `batch` at a time. Throws a usage error if the attention has no visible
// queries and keys.
ScoreTermsFound find_score_terms(const AnalysedModel& model, const AnalysedImages& images,
                                 const AttentionTaps& taps, int64_t batch);

}  // namespace tessera::cli
