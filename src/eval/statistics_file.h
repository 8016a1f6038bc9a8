// Means and covariances of features in NumPy's .npz: `mu`, `sigma` as in pytorch-fid and clean-fid, and
// `mu_s`, `sigma_s` of spatial features as in ADM's evaluation. Our files also contain an array `tessera`:
// JSON bytes with the origin of the features.
#pragma once

#include <optional>
#include <string>

#include "eval/frechet.h"

namespace tessera::eval {

// The origin of features. Two sets of features can be compared only if it is equal.
struct FeatureOrigin {
  std::string extractor;  // "Inception-v3 (FID) 5f3a…": the network and its weights' checksum
  std::string protocol;   // preprocessing of the images

  bool known() const { return !extractor.empty(); }
};

struct FeatureStatistics {
  FeatureOrigin origin;  // unknown in files of other programs
  Gaussian pooled;
  std::optional<Gaussian> spatial;
};

// Throws Error with the file and the array: missing, wrong shape, not finite, or an asymmetric covariance.
FeatureStatistics read_statistics(const std::string& path);
void write_statistics(const std::string& path, const FeatureStatistics& statistics);

// Throws Error if both origins are known and differ.
void require_same_origin(const FeatureOrigin& a, const std::string& name_a, const FeatureOrigin& b,
                         const std::string& name_b);

}  // namespace tessera::eval
