// Measures the quality of label-free features during training, on the first validation images.
#pragma once

#include "data/base/source.h"
#include "tasks/base/sample_rows.h"

namespace tessera::tasks {

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
