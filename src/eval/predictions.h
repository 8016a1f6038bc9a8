// Everything that the scores of one classifier on one set say: agreement, areas under curves, calibration, a temperature.
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

// Whether the highest score of each sample, the first of equals, is the label's.
std::vector<bool> hits(const LabelledScores& scores);

struct PredictionOptions {
  int64_t bins = 15;             // of the calibration errors
  double temperature_share = 0;  // of the samples that a temperature is fitted on; 0 = none is
  uint64_t seed = 0;             // draws those samples
};

struct PredictionMeasures {
  std::vector<std::pair<std::string, double>> numbers;  // in the order of a table, shares in [0, 1]
  Interval accuracy;                                    // Wilson's at 95 %
  Calibration calibration;
  double temperature = 1;  // the fitted one
  // One point for every 0.01, mean over the same classes: of the true positives over the false ones, and of the precision over
  // the recall.
  std::vector<CurvePoint> roc, precision_recall;
};

// The samples of so many that the temperature of measure_predictions() is fitted on, in the order drawn.
std::vector<int64_t> temperature_samples(int64_t samples, const PredictionOptions& options);

// Areas are means over the classes that have samples and are not alone; a usage error where all samples are of one class, or
// where the share of the temperature leaves no sample to fit on or none to measure. A temperature is measured on the other
// samples alone ("rest_…").
PredictionMeasures measure_predictions(const LabelledScores& scores, const PredictionOptions& options);

}  // namespace tessera::eval
