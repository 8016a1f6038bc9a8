// Gathers features of a set of images, batch by batch, in memory that does not grow with the set; and compares two.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "eval/frechet.h"
#include "eval/generative.h"
#include "io/files/file.h"
#include "tasks/base/findings.h"
#include "tasks/generate/feature_extractor.h"

namespace tessera::tasks {

struct MeterOptions {
  int64_t samples = 0;  // that are to come
  int64_t splits = 0;   // of the Inception Score; 0 = none is wanted
  int64_t keep = 0;     // features kept, at even distances, for what compares samples one by one
  bool spatial = true;  // sFID is wanted
};

class GenerativeMeter {
 public:
  GenerativeMeter(const FeatureExtractor& extractor, const MeterOptions& options);
  void add(const ImageFeatures& features);
  int64_t samples() const { return pooled_.samples(); }
  // The following once all samples have come.
  eval::FeatureStatistics statistics() const;
  std::optional<eval::InceptionScore> score() const;
  // [kept, width], in a file without a name that is mapped into memory.
  std::span<const float> kept();

 private:
  eval::FeatureOrigin origin_;
  MeterOptions options_;
  eval::Moments pooled_;
  std::optional<eval::Moments> spatial_;
  std::optional<eval::InceptionScoreMeter> score_;
  int64_t kept_count_ = 0;
  std::unique_ptr<TemporaryFile> file_;
  MappedFile map_;
};

}  // namespace tessera::tasks
