// Mean and covariance of features, gathered sample by sample, and the Frechet distance between two of them (Heusel
// et al. 2017, "GANs trained by a two time-scale update rule converge to a local Nash equilibrium", Eq. 6).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct Gaussian {
  int64_t samples = 0;             // that it was estimated from; 0 = not known
  std::vector<double> mean;        // [width]
  std::vector<double> covariance;  // [width, width], symmetric, divided by samples - 1

  int64_t width() const { return std::ssize(mean); }
};

// Sums in double over any number of samples in memory that depends on their width alone (8 width^2 bytes). The
// result has the same bits however the samples are cut into batches and whatever the number of threads.
class Moments {
 public:
  explicit Moments(int64_t width);
  // Whole rows of `width` features. Fails on a feature that is not finite, naming the sample's place.
  void add(std::span<const float> rows);
  int64_t samples() const { return samples_; }
  int64_t width() const { return width_; }
  // Fails with fewer than two samples.
  Gaussian gaussian() const;

 private:
  int64_t width_, samples_ = 0;
  std::vector<double> origin_;    // the first sample, subtracted from all: sums of small numbers
  std::vector<double> sum_;       // [width]
  std::vector<double> products_;  // [width, width], lower triangle
};

// |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of the root is the sum of the roots of the eigenvalues of
// L^T S2 L with S1 = L L^T, which exist for singular covariances too. Fails where the widths differ.
double frechet_distance(const Gaussian& a, const Gaussian& b);

}  // namespace tessera::eval
