// What the features of a model that learns without labels are worth while it trains, from the first
// validation images.
#pragma once

#include "data/base/source.h"
#include "tasks/base/sample_rows.h"

namespace tessera::tasks {

class FeatureHealth {
 public:
  explicit FeatureHealth(int64_t width) : rows_(width) {}

  // Whether images of a batch before which `before` came are looked at.
  bool wants(int64_t before) const { return before < kSamples; }
  // Features [batch, width] of those images; of others nothing is kept.
  void add(const data::Batch& batch, int64_t before, const torch::Tensor& features);
  // Adds rankme (Garrido et al. 2023), feature_std (the channels' mean deviation over images of features of
  // length 1, times the root of the width: 1 where they spread evenly, 0 where all are one), and with classes
  // knn: the share of images whose 20 nearest others vote for their class. A collapse is a text block.
  void finish(const EvaluateOptions& options, const data::Source* source, Findings& findings);

 private:
  static constexpr int64_t kSamples = 1024;
  SampleRows rows_;
};

}  // namespace tessera::tasks
