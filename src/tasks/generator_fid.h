// FID of a generator while it trains, by the features of a trained classifier.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/config.h"
#include "data/source.h"
#include "eval/frechet.h"
#include "io/image.h"
#include "tasks/feature_extractor.h"
#include "tasks/registry.h"

namespace tessera::tasks {

struct GeneratorFidConfig {
  std::string classifier = "";
  int64_t samples = 1000, reference = 10000;
  template <class V>
  void visit(V& v) {
    v("classifier", classifier,
      "weights whose features measure FID at every evaluation; empty: it is not measured");
    v("samples", samples, between(2, 1'000'000), "images that are drawn for it");
    v("reference", reference, between(2, 10'000'000), "training images that they are compared with, at most");
  }
};

class GeneratorFid {
 public:
  // Real images are `reference`, at most `most` of them at even distances; they are read once, when the first FID is
  // asked for. Usage error where the samples are fewer than two.
  GeneratorFid(OpenedClassifier classifier, std::shared_ptr<const data::Source> reference, int64_t most,
               int64_t samples);

  int64_t samples() const { return samples_; }
  // The distance to the images that `draw` gives: those numbered `first` to `first + count - 1`. `alive` is asked
  // between batches; false ends with ErrorKind::interrupted.
  using Draw = std::function<std::vector<Image>(int64_t first, int64_t count)>;
  double measure(const Draw& draw, const ExtractorPlace& place, const std::function<bool()>& alive);

 private:
  eval::Gaussian gaussian_of(FeatureExtractor& extractor, int64_t count, const Draw& images,
                             const std::function<bool()>& alive) const;

  OpenedClassifier classifier_;
  std::shared_ptr<const data::Source> reference_;
  int64_t most_, samples_;
  eval::Gaussian real_;
};

}  // namespace tessera::tasks
