// The findings of `eval --measures` and `analyse predictions` about classifiers' scores: a table of measures,
// curves, comparisons of models on the same images, reliability.
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

  template <class V>
  void visit(V& v) {
    v("bins", measures.bins, between(1, 1000), "bins of the calibration errors");
    v("temperature", measures.temperature_share, between(0, 0.9),
      "share of the images to fit a temperature on, such as 0.2; the rest is measured with it (0: none)");
    v("real", real, "ReaL labels of ImageNet's validation set (real.json), for an additional accuracy");
    v("seed", seed, "seed of the images for the temperature and of the bootstrap");
  }
};
// One model, at one size and with certain settings.
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
// Compares each later model with the first one, on the same images; `json` gets one object each.
AnalysisSection pairs_section(const std::vector<NamedHits>& models, uint64_t seed,
                              nlohmann::ordered_json& json);

}  // namespace tessera::cli
