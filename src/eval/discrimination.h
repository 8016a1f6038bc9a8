// Measures how well a classifier separates classes, beyond accuracy, with confidence intervals.
//
// Scores are probabilities, row-major [samples, classes]; labels are 0 … classes-1; shares are in [0, 1].
// Some metrics are undefined if a class has no samples or all of them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera::eval {

// Returns softmax(logits / temperature) in float64; logits [samples, classes].
std::vector<double> probabilities(std::span<const float> logits, int64_t classes, double temperature = 1);

// One class against the rest: its score for each sample, and whether the sample belongs to it.
struct OneAgainstRest {
  std::vector<double> scores;
  std::vector<bool> positive;
};
OneAgainstRest one_against_rest(std::span<const double> scores, std::span<const int64_t> labels,
                                int64_t classes, int64_t chosen);

// Returns the share of pairs (positive, negative) in which the positive has the higher score; ties count
// half. Throws Error without a positive or without a negative.
double auroc(const OneAgainstRest& samples);
// Sums (recall - previous recall) * precision over distinct scores from the highest. Throws Error without a
// positive.
double average_precision(const OneAgainstRest& samples);

struct CurvePoint {
  double x = 0, y = 0;
};
// Returns (false, true) positive rates from (0, 0), one point per distinct score from the highest.
std::vector<CurvePoint> roc_curve(const OneAgainstRest& samples);
// Returns (recall, precision), one point per distinct score from the lowest, then (0, 1).
std::vector<CurvePoint> precision_recall_curve(const OneAgainstRest& samples);

// Metrics of counts[true * classes + predicted].
double accuracy(std::span<const int64_t> counts, int64_t classes);
double balanced_accuracy(std::span<const int64_t> counts,
                         int64_t classes);  // mean recall of classes with samples
// Returns Cohen's kappa: agreement beyond chance. `quadratic` weights mistakes by the squared class distance.
double kappa(std::span<const int64_t> counts, int64_t classes, bool quadratic = false);
// Returns Matthews' correlation for any number of classes (Gorodkin 2004); 0 if either side has a single
// class.
double matthews(std::span<const int64_t> counts, int64_t classes);

// Class-wise expected calibration error (Nixon et al. 2019), with bins of equal width over each class's
// probability. Processes one sample at a time, so that memory does not grow with the set.
class ClasswiseCalibration {
 public:
  explicit ClasswiseCalibration(int64_t classes, int64_t bins = 15);
  void add(std::span<const double> row, int64_t label);  // probabilities of one sample
  std::vector<double> by_class() const;
  double mean() const;

 private:
  struct Bin {
    int64_t count = 0;
    double probability = 0, hits = 0;  // sums
  };
  int64_t classes_, bins_, samples_ = 0;
  std::vector<Bin> cells_;  // [classes, bins]
};

// Returns the bin (i / bins, (i + 1) / bins] of a probability; 0 belongs to the first bin.
int64_t equal_width_bin(double probability, int64_t bins);

struct Interval {
  double low = 0, high = 0;
};
// Returns Wilson's interval of the share `hits` / `samples` at 95 % (`deviations` 1.96); {0, 1} without
// samples.
inline constexpr double kDeviations95 = 1.959963984540054;
Interval wilson(int64_t hits, int64_t samples, double deviations = kDeviations95);
// Returns the same for a mean over samples with values in [0, 1]. It is never too narrow, since such a mean
// varies at most as much as a mean of zeros and ones.
Interval wilson_of_mean(double mean, int64_t samples, double deviations = kDeviations95);

// Two models evaluated on the same samples.
struct PairedCounts {
  int64_t samples = 0, both = 0, only_first = 0, only_second = 0;
};
// Throws Error unless both have the same number of samples.
PairedCounts compare_hits(const std::vector<bool>& first, const std::vector<bool>& second);

struct McNemar {
  double exact_p = 1;  // two-sided binomial over the samples that only one model has right
  double chi2 = 0;     // with Edwards' continuity correction
  double chi2_p = 1;
};
McNemar mcnemar(const PairedCounts& counts);

// Returns the 2.5 and 97.5 % quantiles of accuracy(second) - accuracy(first) over `draws` resamples of pairs.
Interval paired_bootstrap(const PairedCounts& counts, int64_t draws = 10000, uint64_t seed = 0);

}  // namespace tessera::eval
