// What is kept of a classifier's evaluation while it runs: not the scores, but what the metrics need of them.
//
// One class a sample: 64 bytes each, and the scores where they are asked for, of one process. Several classes: the average precision of a class needs the order
// of all its scores, so they are kept, 4.1 bytes a sample and class, by each process those of its own
// samples.
#pragma once

#include "ops/torch.h"

#include <vector>

#include "data/loading/loader.h"
#include "eval/classification.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// What is kept of a validation sample, whatever the number of classes.
struct EvaluatedSample {
  int64_t index = 0;  // into the source
  // Several classes a sample: its label is -1, `right` says that every class is, nll, brier and ranks are 0.
  eval::SampleScore score;
};

struct ScoredSamples {
  int64_t samples = 0, classes = 0;
  std::vector<Metric> metrics;
  std::vector<EvaluatedSample> rows;  // of all processes, in the order of the source
  std::vector<float> scores = {};     // [samples, classes], where they were asked for
};

class ScoreAccumulator {
 public:
  // `batches` will be added, the first of them the largest.
  ScoreAccumulator(int64_t classes, bool multi_label, int64_t batches, bool keep_scores = false);

  // Scores [batch size, classes] float32 on the CPU; `before` samples of all processes came before this
  // batch. Pictures that the loader put in the place of broken ones are passed over.
  void add(const data::Batch& batch, int64_t before, const torch::Tensor& scores);

  // Samples, rows and metrics of all processes; an error where there is no sample.
  void finish(const EvaluateOptions& options, ScoredSamples& out);

 private:
  void gather_rows(const EvaluateOptions& options, ScoredSamples& out);
  void measure_classes(ScoredSamples& out) const;
  void measure_labels(const EvaluateOptions& options, ScoredSamples& out) const;
  std::string block_of(size_t first, size_t width) const;

  size_t classes_, batches_;
  bool multi_label_, keep_scores_;
  std::vector<EvaluatedSample> rows_;
  std::vector<float> scores_;  // [rows, classes] where multi-label, or kept
  std::vector<bool> targets_;  // of the same
};

}  // namespace tessera::tasks
