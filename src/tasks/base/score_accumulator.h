// Accumulates the evaluation of a classifier: only the inputs of the metrics, not all scores.
//
// Single-label: 64 bytes per sample; scores only on request, with one process. Multi-label: average precision
// sorts all scores of a class, so they are kept, 4.1 bytes per sample and class. Each process keeps those of
// its own samples.
#pragma once

#include "ops/torch.h"

#include <vector>

#include "data/loading/loader.h"
#include "eval/classification.h"
#include "eval/ranking.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// The values kept for each validation sample, whatever the number of classes.
struct EvaluatedSample {
  int64_t index = 0;  // into the source
  // Multi-label: the label is -1, `right` means that all classes are right, and nll, brier and ranks are 0.
  eval::SampleScore score;
};

// One class of multi-label data. The threshold is a probability.
struct ScoredLabel {
  int64_t samples = 0;            // with the class
  double average_precision = -1;  // -1 if the class has no sample, or a score is NaN
  eval::BestThreshold best = {};
};

struct ScoredSamples {
  int64_t samples = 0, classes = 0;
  std::vector<Metric> metrics;
  std::vector<EvaluatedSample> rows;     // all processes' rows, in the order of the source
  std::vector<float> scores = {};        // [samples, classes], if requested
  std::vector<ScoredLabel> labels = {};  // one per class of multi-label data, if the class table is requested
};

class ScoreAccumulator {
 public:
  // `samples`: number over all processes; the first batch is the largest.
  ScoreAccumulator(int64_t classes, bool multi_label, int64_t samples, bool keep_scores = false);

  // Adds scores [batch size, classes], float32 on the CPU, for a batch of evaluate_each(). Skips substitutes
  // for broken images.
  void add(const data::Batch& batch, const torch::Tensor& scores);

  // Collects samples, rows and metrics from all processes; throws if there are no samples.
  void finish(const EvaluateOptions& options, ScoredSamples& out);

 private:
  void gather_rows(const EvaluateOptions& options, ScoredSamples& out);
  void measure_classes(ScoredSamples& out) const;
  void measure_labels(const EvaluateOptions& options, ScoredSamples& out) const;
  std::string block_of(size_t first, size_t width) const;

  size_t classes_;
  int64_t samples_;
  bool multi_label_, keep_scores_;
  std::vector<EvaluatedSample> rows_;
  std::vector<float> scores_;  // [rows, classes], if multi-label or requested
  std::vector<bool> targets_;  // same shape
};

}  // namespace tessera::tasks
