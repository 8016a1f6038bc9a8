// A row of numbers for each validation sample, gathered from all processes in the order of the source.
// Metrics computed from them are bitwise equal for any number of processes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

class SampleRows {
 public:
  explicit SampleRows(int64_t width) : width_(width) {}

  // Adds rows [batch, width] of any floating-point type for a batch of evaluate_each(). Skips substitutes for
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

// Converts values to bytes and back, for gathering across processes.

template <class Element>
std::string bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

// Appends the elements encoded in `bytes` to `values`.
template <class Element>
void append_bytes(std::vector<Element>& values, std::string_view bytes) {
  const size_t before = values.size();
  values.resize(before + bytes.size() / sizeof(Element));
  if (!bytes.empty()) std::memcpy(values.data() + before, bytes.data(), bytes.size());
}

// Measures the quality of features without labels, during training, on the first validation images.

class FeatureHealth {
 public:
  explicit FeatureHealth(int64_t width) : rows_(width) {}

  // True if images of this batch are still measured.
  bool wants(const data::Batch& batch) const { return batch.first < kSamples; }
  // Keeps the features [batch, width] of measured images; ignores the others.
  void add(const data::Batch& batch, const torch::Tensor& features);
  // Adds rankme (Garrido et al. 2023) and feature_std: the channels' mean deviation of unit-length features,
  // times the root of the width. It is 1 for evenly spread features, 0 if all are equal. With classes, adds
  // knn: the share of images classified correctly by their 20 nearest neighbours. Reports a collapse as a
  // text block.
  void finish(const EvaluateOptions& options, const data::Source* source, Findings& findings);

 private:
  static constexpr int64_t kSamples = 1024;
  SampleRows rows_;
};

}  // namespace tessera::tasks
