// Accumulates features of a set of images, batch by batch, in constant memory, to compare two sets.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "eval/generative.h"
#include "io/files/file.h"
#include "tasks/base/findings.h"
#include "tasks/generate/feature_extractor.h"
#include "tasks/generate/feature_moments.h"

namespace tessera::tasks {

struct MeterOptions {
  int64_t samples = 0;                        // expected number
  int64_t splits = 0;                         // splits for the Inception Score; 0 = no score
  std::optional<uint64_t> shuffle_seed = {};  // order of the samples in the score; unset: as they are added
  int64_t keep = 0;                           // evenly spaced features to keep, for sample-wise metrics
  bool spatial = true;                        // measure sFID
};

class GenerativeMeter {
 public:
  GenerativeMeter(const FeatureExtractor& extractor, const MeterOptions& options);
  void add(const ImageFeatures& features);
  int64_t samples() const { return pooled_.samples(); }
  // The following may be called after all samples were added.
  eval::FeatureStatistics statistics() const;
  std::optional<eval::InceptionScore> score() const;
  // [kept, width], memory-mapped from a temporary file.
  std::span<const float> kept();

 private:
  eval::FeatureOrigin origin_;
  MeterOptions options_;
  FeatureMoments pooled_;
  std::optional<FeatureMoments> spatial_;
  std::optional<eval::InceptionScoreMeter> score_;
  int64_t kept_count_ = 0;
  std::unique_ptr<TemporaryFile> file_;
  MappedFile map_;
};

}  // namespace tessera::tasks
