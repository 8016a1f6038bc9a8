// Metrics of classifiers with one class per sample, on plain arrays. Shares are in [0, 1].
//
//   ClassificationMeter meter(classes);
//   meter.add(logits, labels); // once per batch
//   meter.top(1), meter.top(5), meter.nll(), meter.calibration(15).ece, …
//
// The metrics need only the SampleScore of each sample: 56 bytes for any number of classes. Adding scores in
// the same order gives the same bits in any process.
//
// Logits are row-major [samples, classes]. A row with a NaN at its label counts as wrong. A NaN of another
// class counts as the highest score (as in torch.topk). NLL and Brier score are then NaN.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Which tied classes rank before the label: those of lower index (as in argmax), none, or all.
enum class Ties { lowest_index, optimistic, pessimistic };

// Returns the class with the highest score, the first on a tie; a NaN is higher than any number.
int64_t best_class(std::span<const float> logits);

// Returns the number of classes ranked before the label.
int64_t rank_of_label(std::span<const float> logits, int64_t label, Ties ties = Ties::lowest_index);

// The result of one sample.
struct SampleScore {
  int64_t label = 0, best = 0;
  std::array<int32_t, 3> ranks = {};  // classes ranked before the label, by tie rule
  bool right = false;                 // the best class is the label, and its score is not NaN
  double nll = 0, brier = 0;          // -log softmax at the label; squared error of the probabilities
  double confidence = 0;              // probability of the best class
};
SampleScore score_sample(std::span<const float> logits, int64_t label);

struct ClassScores {
  int64_t samples = 0, predicted = 0, correct = 0;
  double precision = 0, recall = 0, f1 = 0;  // 0 if the denominator is 0
};

struct CalibrationBin {
  double low = 0, high = 0;  // confidences in (low, high]
  int64_t count = 0;
  double accuracy = 0, confidence = 0;  // means over the bin, 0 if it is empty
};

struct Calibration {
  std::vector<CalibrationBin> bins;
  double ece =
      0;  // expected calibration error (Guo et al. 2017): sum of |accuracy - confidence| count / samples
  double max = 0;  // the largest |accuracy - confidence| of a non-empty bin
};

class ClassificationMeter {
 public:
  // The confusion matrix exists only for up to `kMostConfusion` classes.
  explicit ClassificationMeter(int64_t classes);
  static constexpr int64_t kMostConfusion = 4096;

  // Throws Error with the first sample that has a label out of range.
  void add(std::span<const float> logits, std::span<const int64_t> labels);
  void add(const SampleScore& score);

  int64_t classes() const { return classes_; }
  int64_t samples() const { return samples_; }
  double top(int64_t k, Ties ties = Ties::lowest_index) const;
  double nll() const;    // mean -log softmax at the label
  double brier() const;  // mean squared error of the probabilities, summed over classes
  std::vector<ClassScores> per_class() const;
  double mean_class_accuracy() const;  // mean recall of the classes with samples
  double macro_f1() const;             // mean F1 of the same classes
  // [true class][predicted class]; empty above kMostConfusion classes.
  const std::vector<int64_t>& confusion() const { return confusion_; }
  // Computes the calibration over bins of equal width that exclude their lower edge; the confidence is the
  // largest probability.
  Calibration calibration(int64_t bins = 15) const;
  // Returns the ECE over bins with equal counts of samples, sorted stably by confidence.
  double adaptive_ece(int64_t bins = 15) const;

 private:
  int64_t classes_, samples_ = 0;
  std::array<std::vector<int64_t>, 3> ranks_;  // histograms by tie rule
  std::vector<int64_t> true_, predicted_, correct_, confusion_;
  double nll_ = 0, brier_ = 0;
  std::vector<double> confidences_;
  std::vector<bool> hits_;
};

// Returns the mean negative log-likelihood of logits / temperature.
double nll(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
           double temperature = 1);
// Returns the temperature in this range with the smallest NLL.
inline constexpr double kLowestTemperature = 1e-3, kHighestTemperature = 1e3;
double fit_temperature(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes);
// Returns the top-1 accuracy among the chosen classes, over the samples of these classes (ImageNet-A and -R).
// 0 if no sample belongs to them.
double subset_accuracy(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
                       std::span<const int64_t> chosen);

}  // namespace tessera::eval
