// How well a classifier tells classes apart, beyond the share of right answers; and how sure such numbers are.
//
// Scores are probabilities, row-major [samples, classes]; labels 0 … classes-1. Results that a sample decides (no sample of a
// class, no sample of any other) have no value then: functions say which class it is. Shares are in [0, 1].
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera::eval {

// softmax of logits [samples, classes], in float64.
std::vector<double> probabilities(std::span<const float> logits, int64_t classes, double temperature = 1);

// One class against the rest: its score for each sample, and whether the sample is of it.
struct OneAgainstRest {
  std::vector<double> scores;
  std::vector<bool> positive;
};
OneAgainstRest one_against_rest(std::span<const double> scores, std::span<const int64_t> labels,
                                int64_t classes, int64_t chosen);

// The share of pairs (a positive, a negative) in which the positive has the higher score; equal scores count half. Fails
// without a positive or without a negative.
double auroc(const OneAgainstRest& samples);
// Sum over the distinct scores, from the highest, of (recall - recall before) * precision. Fails without a positive.
double average_precision(const OneAgainstRest& samples);

struct CurvePoint {
  double x = 0, y = 0;
};
// (false positives, true positives) as shares, from (0, 0) on, a point for each distinct score from the highest.
std::vector<CurvePoint> roc_curve(const OneAgainstRest& samples);
// (recall, precision), a point for each distinct score from the lowest, and last (0, 1).
std::vector<CurvePoint> precision_recall_curve(const OneAgainstRest& samples);

// Of counts[true * classes + predicted], all in all and by class.
double accuracy(std::span<const int64_t> counts, int64_t classes);
double balanced_accuracy(std::span<const int64_t> counts,
                         int64_t classes);  // mean recall of classes that there are
// Cohen's kappa: agreement beyond chance; `quadratic` weighs mistakes by the squared distance of the classes.
double kappa(std::span<const int64_t> counts, int64_t classes, bool quadratic = false);
// Matthews' correlation for any number of classes (Gorodkin 2004); 0 where one side has one class alone.
double matthews(std::span<const int64_t> counts, int64_t classes);

// Class-wise expected calibration error (Nixon et al. 2019): for each class bins of equal width over its probability. A
// sample at a time, so that nothing of the size of the set is kept.
class ClasswiseCalibration {
 public:
  explicit ClasswiseCalibration(int64_t classes, int64_t bins = 15);
  void add(std::span<const double> row, int64_t label);  // the probabilities of one sample
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

// The bin (i / bins, (i + 1) / bins] that a probability lies in; 0 lies in the first.
int64_t equal_width_bin(double probability, int64_t bins);

struct Interval {
  double low = 0, high = 0;
};
// Wilson's interval of a share `hits` / `samples` at 95 % (`deviations` 1.96); {0, 1} without samples.
inline constexpr double kDeviations95 = 1.959963984540054;
Interval wilson(int64_t hits, int64_t samples, double deviations = kDeviations95);
// The same of a mean over samples that are each worth 0 to 1, as a sample's share of right answers is: it is never too narrow, for
// such a mean varies at most as one of zeros and ones does.
Interval wilson_of_mean(double mean, int64_t samples, double deviations = kDeviations95);

// Two models on the same samples.
struct PairedCounts {
  int64_t samples = 0, both = 0, only_first = 0, only_second = 0;
};
// Fails unless both are of the same number of samples.
PairedCounts compare_hits(const std::vector<bool>& first, const std::vector<bool>& second);

struct McNemar {
  double exact_p = 1;  // two-sided binomial over the samples that one model alone has right
  double chi2 = 0;     // with Edwards' correction
  double chi2_p = 1;
};
McNemar mcnemar(const PairedCounts& counts);

// The 2.5 and 97.5 % quantiles of accuracy(second) - accuracy(first) over `draws` samples with replacement of the pairs.
Interval paired_bootstrap(const PairedCounts& counts, int64_t draws = 10000, uint64_t seed = 0);

}  // namespace tessera::eval
