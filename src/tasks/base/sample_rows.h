// A row of numbers for each validation sample, gathered from all processes in the order of the source.
// Metrics computed from them are bitwise equal for any number of processes.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/base/task.h"

namespace tessera::tasks {

class SampleRows {
 public:
  explicit SampleRows(int64_t width) : width_(width) {}

  // Adds rows [batch, width] of any floating-point type, of a batch of evaluate_each(). Skips substitutes for
  // broken images.
  void add(const data::Batch& batch, const torch::Tensor& rows);
  // Gathers all rows on every process.
  void collect(const EvaluateOptions& options);

  int64_t size() const { return static_cast<int64_t>(indices_.size()); }
  const std::vector<int64_t>& indices() const { return indices_; }  // into the source, ascending
  std::vector<float> column(int64_t index) const;
  // [size, width] float32 on the CPU.
  torch::Tensor rows() const;

 private:
  int64_t width_;
  std::vector<int64_t> indices_;
  std::vector<float> values_;
};

}  // namespace tessera::tasks
