// Means and covariances of features in NumPy's .npz: `mu`, `sigma` as pytorch-fid and clean-fid write them, and
// `mu_s`, `sigma_s` of spatial features as the evaluation of ADM has them besides. Ours hold a further array `tessera`,
// JSON as bytes, that says what they were made with.
#pragma once

#include <optional>
#include <string>

#include "eval/frechet.h"

namespace tessera::eval {

// What made the features. Two sets of features can be compared only where these agree.
struct FeatureOrigin {
  std::string extractor;  // "Inception-v3 (FID) 5f3a…": the network with the check sum of its weights
  std::string protocol;   // how images were prepared for it

  bool known() const { return !extractor.empty(); }
};

struct FeatureStatistics {
  FeatureOrigin origin;  // not known in files of other programs
  Gaussian pooled;
  std::optional<Gaussian> spatial;
};

// Fails naming the file and the array: absent, of another shape, not finite, a covariance that is not symmetric.
FeatureStatistics read_statistics(const std::string& path);
void write_statistics(const std::string& path, const FeatureStatistics& statistics);

// Fails unless both origins are known and the same, or one is not known.
void require_same_origin(const FeatureOrigin& a, const std::string& name_a, const FeatureOrigin& b,
                         const std::string& name_b);

}  // namespace tessera::eval
