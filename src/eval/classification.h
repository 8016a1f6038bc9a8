// Metrics of classifiers on plain arrays: one class a sample. Shares are in [0, 1].
//
//   ClassificationMeter meter(classes);
//   meter.add(logits, labels);            // as often as there are batches
//   meter.top(1), meter.top(5), meter.nll(), meter.calibration(15).ece, …
//
// The metrics need only the SampleScore of a sample, 56 bytes whatever the number of classes; a meter
// adds scores in any process to the same bits, as long as they come in the same order.
//
// Logits are row-major [samples, classes]. A row whose label has a NaN counts as wrong, another class's NaN
// as the highest score (as in torch.topk); NLL and Brier score then are NaN.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Whether a class with exactly the label's score is ranked before the label: those of lower index are (as in
// argmax), none is, or all are.
enum class Ties { lowest_index, optimistic, pessimistic };

// The class with the highest score, the first of equals; a NaN is higher than any number.
int64_t best_class(std::span<const float> logits);

// How many classes are ranked before the label.
int64_t rank_of_label(std::span<const float> logits, int64_t label, Ties ties = Ties::lowest_index);

// One sample's logits against its label.
struct SampleScore {
  int64_t label = 0, best = 0;
  std::array<int32_t, 3> ranks = {};  // classes ranked before the label, by tie rule
  bool right = false;                 // the best class is the label, and its score a number
  double nll = 0, brier = 0;          // -log softmax at the label; squared errors of the probabilities
  double confidence = 0;              // probability of the best class
};
SampleScore score_sample(std::span<const float> logits, int64_t label);

struct ClassScores {
  int64_t samples = 0, predicted = 0, correct = 0;
  double precision = 0, recall = 0, f1 = 0;  // 0 where there is nothing to divide by
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
  double max = 0;  // the largest |accuracy - confidence| of a bin that is not empty
};

class ClassificationMeter {
 public:
  // The confusion matrix is kept up to `kMostConfusion` classes.
  explicit ClassificationMeter(int64_t classes);
  static constexpr int64_t kMostConfusion = 4096;

  // Errors name the first sample whose label is out of range.
  void add(std::span<const float> logits, std::span<const int64_t> labels);
  void add(const SampleScore& score);

  int64_t classes() const { return classes_; }
  int64_t samples() const { return samples_; }
  double top(int64_t k, Ties ties = Ties::lowest_index) const;
  double nll() const;    // mean of -log softmax at the label
  double brier() const;  // mean of the squared errors of the probabilities, summed over the classes
  std::vector<ClassScores> per_class() const;
  double mean_class_accuracy() const;  // mean recall of the classes that have samples
  double macro_f1() const;             // mean F1 of the same
  // [true class][predicted class]; empty above kMostConfusion classes.
  const std::vector<int64_t>& confusion() const { return confusion_; }
  // Confidence is the largest probability. Bins of equal width, open on the left.
  Calibration calibration(int64_t bins = 15) const;
  // Bins of equal count, by confidence in stable order: the ECE of them.
  double adaptive_ece(int64_t bins = 15) const;

 private:
  int64_t classes_, samples_ = 0;
  std::array<std::vector<int64_t>, 3> ranks_;  // histograms by tie rule
  std::vector<int64_t> true_, predicted_, correct_, confusion_;
  double nll_ = 0, brier_ = 0;
  std::vector<double> confidences_;
  std::vector<bool> hits_;
};

// Mean negative log-likelihood of logits / temperature.
double nll(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
           double temperature = 1);
// The temperature between these with the smallest NLL.
inline constexpr double kLowestTemperature = 1e-3, kHighestTemperature = 1e3;
double fit_temperature(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes);
// Top-1 among the chosen classes alone, over the samples that belong to one of them (ImageNet-A and -R). 0 if
// none does.
double subset_accuracy(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
                       std::span<const int64_t> chosen);

}  // namespace tessera::eval
