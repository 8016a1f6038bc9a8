// What is kept of a classifier's evaluation while it runs: not the scores, but what the metrics need of them.
//
// One class a sample: 64 bytes each. Several classes: the average precision of a class needs the order
// of all its scores, so they are kept, 4.1 bytes a sample and class, by each process those of its own
// samples.
#pragma once

#include "ops/torch.h"

#include <vector>

#include "data/loader.h"
#include "tasks/task.h"

namespace tessera::tasks {

class Tally {
 public:
  // `batches` will be added, the first of them the largest.
  Tally(int64_t classes, bool multi_label, int64_t batches);

  // Scores [batch size, classes] float32 on the CPU; `before` samples of all processes came before this
  // batch. Pictures that the loader put in the place of broken ones are passed over.
  void add(const data::Batch& batch, int64_t before, const torch::Tensor& scores);

  // Samples, rows and metrics of all processes; an error where there is no sample.
  void finish(const EvaluateOptions& options, Evaluation& out);

 private:
  void gather_rows(const EvaluateOptions& options, Evaluation& out);
  void measure_classes(Evaluation& out) const;
  void measure_labels(const EvaluateOptions& options, Evaluation& out) const;
  std::string block_of(size_t first, size_t width) const;

  size_t classes_, batches_;
  bool multi_label_;
  std::vector<EvaluatedSample> rows_;
  std::vector<float> scores_;  // [rows, classes] where multi-label
  std::vector<bool> targets_;  // of the same
};

}  // namespace tessera::tasks
