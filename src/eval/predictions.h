// Metrics of one classifier's scores on one set: accuracy, areas under curves, calibration, a temperature.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eval/classification.h"
#include "eval/discrimination.h"

namespace tessera::eval {

// Logits row-major [samples, classes], labels 0 … classes-1.
struct LabelledScores {
  std::span<const float> logits;
  std::span<const int64_t> labels;
  int64_t classes = 0;
  int64_t samples() const { return std::ssize(labels); }
  std::span<const float> row(int64_t sample) const {
    return logits.subspan(static_cast<size_t>(sample * classes), static_cast<size_t>(classes));
  }
};

// True for each sample whose label has the highest score (the first on a tie).
std::vector<bool> hits(const LabelledScores& scores);

struct PredictionOptions {
  int64_t bins = 15;             // bins of the calibration errors
  double temperature_share = 0;  // share of the samples to fit a temperature on; 0 = no fit
  uint64_t seed = 0;             // draws those samples
};

struct PredictionMeasures {
  std::vector<std::pair<std::string, double>> numbers;  // in table order, shares in [0, 1]
  Interval accuracy;                                    // Wilson's interval at 95 %
  Calibration calibration;
  double temperature = 1;  // fitted
  // One point for every 0.01, averaged over the same classes: true-positive over false-positive rate, and
  // precision over recall.
  std::vector<CurvePoint> roc, precision_recall;
};

// Returns the samples that measure_predictions() fits the temperature on, in the order drawn.
std::vector<int64_t> temperature_samples(int64_t samples, const PredictionOptions& options);

// Areas under curves are means over the classes with both positives and negatives. The temperature's metrics
// ("rest_…") use only the samples that it was not fitted on. Throws a usage error if all samples have one
// class, or if the temperature's share leaves no sample to fit on or to measure.
PredictionMeasures measure_predictions(const LabelledScores& scores, const PredictionOptions& options);

}  // namespace tessera::eval
