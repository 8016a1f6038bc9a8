// Mean and covariance of features on their device: products of 2,048 channels for each image take as long as the network on a
// GPU if the host computes them.
#pragma once

#include "ops/torch.h"

#include <optional>

#include "eval/frechet.h"

namespace tessera::tasks {

// The sums of eval::Moments as tensors in float64 on the device of the first rows; equal up to the order of sums in a batch.
class MomentsThere {
 public:
  explicit MomentsThere(int64_t width) : width_(width) {}
  // Adds f32 [count, width]. Nothing is read back.
  void add(const torch::Tensor& rows);
  int64_t samples() const { return samples_; }
  // Throws Error with the index of the first sample with a feature that is not finite, or with fewer than two samples.
  eval::Gaussian gaussian() const;

 private:
  int64_t width_, samples_ = 0;
  torch::Tensor origin_, sum_, products_;  // [width], [width], [width, width]
  torch::Tensor first_bad_;                // [] int64
};

// Accumulates features: in main memory by eval::Moments, on a GPU there.
class FeatureMoments {
 public:
  explicit FeatureMoments(int64_t width) : here_(width) {}
  // Adds contiguous f32 [count, width], of one device in all calls.
  void add(const torch::Tensor& rows);
  int64_t samples() const { return there_ ? there_->samples() : here_.samples(); }
  int64_t width() const { return here_.width(); }
  eval::Gaussian gaussian() const { return there_ ? there_->gaussian() : here_.gaussian(); }

 private:
  eval::Moments here_;
  std::optional<MomentsThere> there_;
};

}  // namespace tessera::tasks
