// Quality of generated images, from their features and those of a reference set: Inception Score, kernel
// distance, precision and recall, density and coverage. Features are rows of `width` floats; sums are in
// double.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::eval {

// exp of the mean over samples of KL(p(y|x) || p(y)), for each split (Salimans et al. 2016, "Improved
// techniques for training GANs"). Split i of n has the samples i N / n to (i + 1) N / n - 1, in the order in
// which they are added, or shuffled, since with samples sorted by class a split would have too few classes.
struct InceptionScore {
  double mean = 0, deviation = 0;  // over the splits; the variance is divided by their number
  std::vector<double> splits;
};
class InceptionScoreMeter {
 public:
  // `samples`: number of samples to be added. Throws a usage error if it is below the number of splits.
  // `shuffle_seed` selects a random order; without it samples keep theirs.
  InceptionScoreMeter(int64_t classes, int64_t samples, int64_t splits,
                      std::optional<uint64_t> shuffle_seed = {});
  // Adds whole rows of `classes` probabilities.
  void add(std::span<const double> probabilities);
  // Throws Error unless all samples were added.
  InceptionScore score() const;

 private:
  int64_t split_of(int64_t sample) const;

  int64_t classes_, samples_, count_ = 0;
  std::vector<int64_t> order_;            // [samples] if shuffled
  std::vector<double> negative_entropy_;  // [splits], sums of p log p
  std::vector<double> sums_;              // [splits, classes], of p
};

// Returns the squared maximum mean discrepancy with the kernel (x . y / width + 1)^3, unbiased (Binkowski et
// al. 2018, "Demystifying MMD GANs"). Each set needs at least two samples.
double kernel_distance(std::span<const float> real, std::span<const float> fake, int64_t width);
// The same over `subsets` pairs of random subsets of `size` samples, drawn without replacement from the seed.
struct KernelDistance {
  double mean = 0, deviation = 0;
};
KernelDistance kernel_distance_of_subsets(std::span<const float> real, std::span<const float> fake,
                                          int64_t width, int64_t subsets, int64_t size, uint64_t seed);

// Each sample has a ball that reaches to its k-th nearest neighbour in its own set.
//   precision  share of fakes in the ball of any real sample; recall: the reverse (Kynkaanniemi et al. 2019,
//              "Improved precision and recall metric for assessing generative models")
//   density    mean number of balls of real samples around a fake, over k; coverage: share of real samples
//              with a fake in their ball (Naeem et al. 2020, "Reliable fidelity and diversity metrics")
struct ManifoldScores {
  double precision = 0, recall = 0, density = 0, coverage = 0;
};
// Takes width (real + fake)^2 operations. Throws a usage error unless both sets have more than `neighbours`
// samples.
ManifoldScores manifold_scores(std::span<const float> real, std::span<const float> fake, int64_t width,
                               int64_t neighbours);

}  // namespace tessera::eval
