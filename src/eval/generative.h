// What a set of generated images is worth, from features of it and of a reference: Inception Score, kernel
// distance, precision and recall, density and coverage. Features are rows of `width` floats; sums are in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// exp of the mean over samples of KL(p(y|x) || p(y)), split by split (Salimans et al. 2016, "Improved techniques for
// training GANs"). Split i of n holds the samples from i N / n to (i + 1) N / n - 1, in the order in which they come.
struct InceptionScore {
  double mean = 0, deviation = 0;  // of the splits; the deviation divided by their number
  std::vector<double> splits;
};
class InceptionScoreMeter {
 public:
  // `samples` are to come. A usage error for fewer samples than splits.
  InceptionScoreMeter(int64_t classes, int64_t samples, int64_t splits);
  // Whole rows of `classes` probabilities.
  void add(std::span<const double> probabilities);
  // Fails unless all samples have come.
  InceptionScore score() const;

 private:
  int64_t classes_, samples_, count_ = 0;
  std::vector<double> negative_entropy_;  // [splits], sums of p log p
  std::vector<double> sums_;              // [splits, classes], of p
};

// The squared maximum mean discrepancy of the kernel (x . y / width + 1)^3, unbiased (Binkowski et al. 2018,
// "Demystifying MMD GANs"). Needs two samples in each set.
double kernel_distance(std::span<const float> real, std::span<const float> fake, int64_t width);
// The same of `subsets` pairs of random subsets of `size` samples without replacement, drawn from the seed.
struct KernelDistance {
  double mean = 0, deviation = 0;
};
KernelDistance kernel_distance_of_subsets(std::span<const float> real, std::span<const float> fake,
                                          int64_t width, int64_t subsets, int64_t size, uint64_t seed);

// With the ball around a sample that reaches to its k-th nearest other one of its own set:
//   precision  share of fakes in the ball of any real one; recall the other way round (Kynkaanniemi et al. 2019,
//              "Improved precision and recall metric for assessing generative models")
//   density    how many balls of real ones hold a fake one, on average, over k; coverage share of real ones whose
//              ball holds a fake one (Naeem et al. 2020, "Reliable fidelity and diversity metrics")
struct ManifoldScores {
  double precision = 0, recall = 0, density = 0, coverage = 0;
};
// width (real + fake)^2 operations. Both sets need more than `neighbours` samples: else a usage error.
ManifoldScores manifold_scores(std::span<const float> real, std::span<const float> fake, int64_t width,
                               int64_t neighbours);

}  // namespace tessera::eval
