// What `eval --measures` and `analyse predictions` show of classifiers' scores: measures side by side, their curves, pairs of models on the same
// images, reliability.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/base/analysis_output.h"
#include "eval/predictions.h"

namespace tessera::cli {

// --bins, --temperature, --seed, --real.
struct PredictionSettings {
  eval::PredictionOptions measures;
  int64_t seed = 0;
  std::string real;
  uint64_t draws() const { return static_cast<uint64_t>(seed); }
};
void add_prediction_options(Arguments& command, PredictionSettings& settings);

// One model, at one size with some settings.
struct MeasuredPredictions {
  std::string label;  // of its column and curves
  eval::PredictionMeasures measures;
};

// A column each, with the reliability diagram, the ROC and the precision-recall curve.
AnalysisSection measures_section(const std::vector<MeasuredPredictions>& measured, int64_t bins);
// The bins of the reliability diagram.
AnalysisSection bins_section(const MeasuredPredictions& measured);

// The measures by their names.
nlohmann::ordered_json measures_json(const eval::PredictionMeasures& measures);

// Which images a model has right.
struct NamedHits {
  std::string label;
  std::vector<bool> hits;
};
// Each later model beside the first one, on the same images; `json` gets one object each.
AnalysisSection pairs_section(const std::vector<NamedHits>& models, uint64_t seed,
                              nlohmann::ordered_json& json);

}  // namespace tessera::cli
