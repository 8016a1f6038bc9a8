// Mean and covariance of features, accumulated sample by sample, and the Frechet distance between two of them
// (Heusel et al. 2017, "GANs trained by a two time-scale update rule converge to a local Nash equilibrium",
// Eq. 6).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct Gaussian {
  int64_t samples = 0;             // number of samples in the estimate; 0 = unknown
  std::vector<double> mean;        // [width]
  std::vector<double> covariance;  // [width, width], symmetric, divided by samples - 1

  int64_t width() const { return std::ssize(mean); }
};

// Returns mean and covariance from sums over samples minus an `origin` [width]: `sum` [width], and of products [width, width], from
// which the lower triangle is read. Throws Error with fewer than two samples.
Gaussian gaussian_of_sums(int64_t samples, std::span<const double> origin, std::span<const double> sum,
                          std::span<const double> products);

// Accumulates sums in double over any number of samples; memory depends only on the width (8 width^2 bytes).
// The bits do not depend on the batches or on the number of threads.
class Moments {
 public:
  explicit Moments(int64_t width);
  // Adds whole rows of `width` features. Throws Error with the sample's index if a feature is not finite.
  void add(std::span<const float> rows);
  int64_t samples() const { return samples_; }
  int64_t width() const { return width_; }
  // Throws Error with fewer than two samples.
  Gaussian gaussian() const { return gaussian_of_sums(samples_, origin_, sum_, products_); }

 private:
  int64_t width_, samples_ = 0;
  std::vector<double> origin_;    // the first sample, which is subtracted from all to keep the sums small
  std::vector<double> sum_;       // [width]
  std::vector<double> products_;  // [width, width], lower triangle
};

// Returns |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of the root is the sum of the square roots
// of the eigenvalues of L^T S2 L with S1 = L L^T, which exist even for singular covariances. Throws Error if
// the widths differ.
double frechet_distance(const Gaussian& a, const Gaussian& b);

}  // namespace tessera::eval
