#include "eval/classification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace tessera::eval {
namespace {

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Returns log(sum(exp(x / T))) of one row.
double log_sum_exp(std::span<const float> logits, double temperature) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float x : logits) largest = std::max(largest, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp((static_cast<double>(x) - largest) / temperature);
  return largest / temperature + std::log(sum);
}

void check_rows(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes) {
  check(logits.size() == labels.size() * static_cast<size_t>(classes), "metric: ", logits.size(),
        " scores for ", labels.size(), " samples of ", classes, " classes");
  for (size_t i = 0; i < labels.size(); ++i)
    check(labels[i] >= 0 && labels[i] < classes, "metric: label of sample ", i, " is ", labels[i],
          ", must be 0 to ", classes - 1);
}

std::span<const float> row(std::span<const float> logits, int64_t classes, size_t i) {
  return logits.subspan(i * static_cast<size_t>(classes), static_cast<size_t>(classes));
}

// Returns the label's rank under a tie rule. A NaN ranks before every number, except that a NaN at the label
// ranks last.
std::array<int32_t, 3> ranks_of_label(std::span<const float> logits, int64_t label) {
  const auto at = static_cast<size_t>(label);
  const float score = logits[at];
  const auto classes = static_cast<int32_t>(logits.size());
  if (std::isnan(score)) return {classes - 1, classes - 1, classes - 1};
  int32_t above = 0, equal_before = 0, equal_behind = 0;
  for (size_t c = 0; c < logits.size(); ++c) {
    above += logits[c] > score || std::isnan(logits[c]);
    (c < at ? equal_before : equal_behind) += logits[c] == score;
  }
  return {above + equal_before, above, above + equal_before + equal_behind - 1};  // without the label
}

}  // namespace

int64_t best_class(std::span<const float> logits) {
  size_t best = 0;
  for (size_t c = 0; c < logits.size() && !std::isnan(logits[best]); ++c)
    if (logits[c] > logits[best] || std::isnan(logits[c])) best = c;
  return static_cast<int64_t>(best);
}

int64_t rank_of_label(std::span<const float> logits, int64_t label, Ties ties) {
  return ranks_of_label(logits, label)[static_cast<size_t>(ties)];
}

SampleScore score_sample(std::span<const float> logits, int64_t label) {
  const auto at = static_cast<size_t>(label);
  SampleScore score;
  score.label = label;
  score.best = best_class(logits);
  score.ranks = ranks_of_label(logits, label);
  score.right = score.best == label && !std::isnan(logits[at]);
  const double log_sum = log_sum_exp(logits, 1);
  for (size_t c = 0; c < logits.size(); ++c) {
    const double error = std::exp(static_cast<double>(logits[c]) - log_sum) - (c == at ? 1 : 0);
    score.brier += error * error;
  }
  score.nll = log_sum - static_cast<double>(logits[at]);
  score.confidence = std::exp(static_cast<double>(logits[static_cast<size_t>(score.best)]) - log_sum);
  return score;
}

ClassificationMeter::ClassificationMeter(int64_t classes) : classes_(classes) {
  check(classes > 0, "metric: ", classes, " classes");
  const auto n = static_cast<size_t>(classes);
  for (auto& histogram : ranks_) histogram.resize(n);
  true_.resize(n), predicted_.resize(n), correct_.resize(n);
  if (classes <= kMostConfusion) confusion_.resize(n * n);
}

void ClassificationMeter::add(std::span<const float> logits, std::span<const int64_t> labels) {
  check_rows(logits, labels, classes_);
  for (size_t i = 0; i < labels.size(); ++i) add(score_sample(row(logits, classes_, i), labels[i]));
}

void ClassificationMeter::add(const SampleScore& score) {
  const auto label = static_cast<size_t>(score.label), best = static_cast<size_t>(score.best);
  ++samples_;
  for (size_t ties = 0; ties < ranks_.size(); ++ties) ++ranks_[ties][static_cast<size_t>(score.ranks[ties])];
  ++true_[label];
  ++predicted_[best];
  correct_[label] += score.right;
  if (!confusion_.empty()) ++confusion_[label * static_cast<size_t>(classes_) + best];
  brier_ += score.brier;
  nll_ += score.nll;
  confidences_.push_back(score.confidence);
  hits_.push_back(score.best == score.label);
}

double ClassificationMeter::top(int64_t k, Ties ties) const {
  const auto& histogram = ranks_[static_cast<size_t>(ties)];
  const auto end = histogram.begin() + std::clamp<int64_t>(k, 0, classes_);
  return share(static_cast<double>(std::accumulate(histogram.begin(), end, int64_t{0})),
               static_cast<double>(samples_));
}

double ClassificationMeter::nll() const { return share(nll_, static_cast<double>(samples_)); }

double ClassificationMeter::brier() const { return share(brier_, static_cast<double>(samples_)); }

std::vector<ClassScores> ClassificationMeter::per_class() const {
  std::vector<ClassScores> scores(static_cast<size_t>(classes_));
  for (size_t c = 0; c < scores.size(); ++c) {
    ClassScores& s = scores[c];
    s.samples = true_[c], s.predicted = predicted_[c], s.correct = correct_[c];
    s.precision = share(static_cast<double>(s.correct), static_cast<double>(s.predicted));
    s.recall = share(static_cast<double>(s.correct), static_cast<double>(s.samples));
    s.f1 = share(2 * static_cast<double>(s.correct), static_cast<double>(s.predicted + s.samples));
  }
  return scores;
}

double ClassificationMeter::mean_class_accuracy() const {
  double sum = 0, present = 0;
  for (const ClassScores& scores : per_class())
    if (scores.samples > 0) sum += scores.recall, present += 1;
  return share(sum, present);
}

double ClassificationMeter::macro_f1() const {
  double sum = 0, present = 0;
  for (const ClassScores& scores : per_class())
    if (scores.samples > 0) sum += scores.f1, present += 1;
  return share(sum, present);
}

Calibration ClassificationMeter::calibration(int64_t bins) const {
  check(bins > 0, "metric: calibration with ", bins, " bins");
  Calibration result;
  const auto edge = [&](int64_t i) { return static_cast<double>(i) / static_cast<double>(bins); };
  for (int64_t i = 0; i < bins; ++i) result.bins.push_back({edge(i), edge(i + 1), 0, 0, 0});
  for (size_t i = 0; i < confidences_.size(); ++i) {
    if (std::isnan(confidences_[i])) continue;
    const double scaled = confidences_[i] * static_cast<double>(bins);
    int64_t bin = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(scaled)) - 1, 0, bins - 1);
    while (bin > 0 && confidences_[i] <= edge(bin)) --bin;  // the product may have been rounded past the edge
    while (bin + 1 < bins && confidences_[i] > edge(bin + 1)) ++bin;
    CalibrationBin& b = result.bins[static_cast<size_t>(bin)];
    ++b.count;
    b.confidence += confidences_[i];
    b.accuracy += hits_[i] ? 1 : 0;
  }
  for (CalibrationBin& b : result.bins) {
    if (b.count == 0) continue;
    b.confidence /= static_cast<double>(b.count);
    b.accuracy /= static_cast<double>(b.count);
    const double gap = std::abs(b.accuracy - b.confidence);
    result.ece += gap * share(static_cast<double>(b.count), static_cast<double>(samples_));
    result.max = std::max(result.max, gap);
  }
  return result;
}

double ClassificationMeter::adaptive_ece(int64_t bins) const {
  check(bins > 0, "metric: calibration with ", bins, " bins");
  std::vector<size_t> order(confidences_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return confidences_[a] < confidences_[b]; });
  const size_t groups = static_cast<size_t>(bins), each = order.size() / groups,
               longer = order.size() % groups;
  double sum = 0;
  size_t next = 0;
  for (size_t group = 0; group < groups; ++group) {
    double gap = 0;  // sums instead of means: the division by the group's size cancels
    for (size_t n = each + (group < longer ? 1 : 0); n > 0; --n, ++next)
      gap += (hits_[order[next]] ? 1 : 0) - confidences_[order[next]];
    sum += std::abs(gap);
  }
  return share(sum, static_cast<double>(samples_));
}

double nll(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
           double temperature) {
  check_rows(logits, labels, classes);
  check(temperature > 0, "metric: temperature is ", temperature, ", must be above 0");
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto x = row(logits, classes, i);
    sum += log_sum_exp(x, temperature) - static_cast<double>(x[static_cast<size_t>(labels[i])]) / temperature;
  }
  return share(sum, static_cast<double>(labels.size()));
}

// The NLL is convex in b = 1 / temperature, with derivative mean(E_p[x - x_label]). Bisects on its sign in
// log b. If the labels already have probability 1, the derivative is 0, so correct scores end at the lowest
// temperature.
double fit_temperature(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes) {
  check_rows(logits, labels, classes);
  const auto slope = [&](double log_b) {
    const double b = std::exp(log_b);
    double sum = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto x = row(logits, classes, i);
      const double log_sum = log_sum_exp(x, 1 / b);
      const auto own = static_cast<double>(x[static_cast<size_t>(labels[i])]);
      for (const float v : x)
        sum += std::exp(static_cast<double>(v) * b - log_sum) * (static_cast<double>(v) - own);
    }
    return sum;
  };
  double low = -std::log(kHighestTemperature), high = -std::log(kLowestTemperature);
  if (slope(low) >= 0) return kHighestTemperature;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (slope(middle) <= 0 ? low : high) = middle;
  }
  return std::exp(-(low + high) / 2);
}

double subset_accuracy(std::span<const float> logits, std::span<const int64_t> labels, int64_t classes,
                       std::span<const int64_t> chosen) {
  check_rows(logits, labels, classes);
  for (const int64_t c : chosen)
    check(c >= 0 && c < classes, "metric: class ", c, " of the subset, must be 0 to ", classes - 1);
  int64_t samples = 0, correct = 0;
  std::vector<float> scores(chosen.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto at = std::find(chosen.begin(), chosen.end(), labels[i]);
    if (at == chosen.end()) continue;
    const auto x = row(logits, classes, i);
    for (size_t c = 0; c < chosen.size(); ++c) scores[c] = x[static_cast<size_t>(chosen[c])];
    ++samples;
    correct += rank_of_label(scores, at - chosen.begin()) == 0;
  }
  return share(static_cast<double>(correct), static_cast<double>(samples));
}

}  // namespace tessera::eval
