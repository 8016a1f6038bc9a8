#include "eval/predictions.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace tessera::eval {
namespace {

constexpr int kCurveParts = 100;
// Tolerance for a share times kCurveParts: 7 of 100 samples give 7.000000000000001.
constexpr double kRounding = 1e-9;

ClassificationMeter meter_of(const LabelledScores& scores) {
  ClassificationMeter meter(scores.classes);
  meter.add(scores.logits, scores.labels);
  return meter;
}

// Adds to `sums` the true-positive rate of a ROC curve at each false-positive rate k / kCurveParts.
void add_roc(const std::vector<CurvePoint>& curve, std::vector<double>& sums) {
  size_t at = 0;
  double best = 0;
  for (int k = 0; k <= kCurveParts; ++k) {
    for (; at < curve.size() && curve[at].x * kCurveParts <= k + kRounding; ++at)
      best = std::max(best, curve[at].y);
    sums[static_cast<size_t>(k)] += best;
  }
}

// Adds to `sums` the highest precision at each recall >= k / kCurveParts. The curve's recall falls from 1.
void add_precision(const std::vector<CurvePoint>& curve, std::vector<double>& sums) {
  size_t at = 0;
  double best = 0;
  for (int k = kCurveParts; k >= 0; --k) {
    for (; at < curve.size() && curve[at].x * kCurveParts >= k - kRounding; ++at)
      best = std::max(best, curve[at].y);
    sums[static_cast<size_t>(k)] += best;
  }
}

void measure_areas(const std::vector<double>& probabilities, const LabelledScores& scores,
                   PredictionMeasures& out) {
  double area = 0, precision = 0, counted = 0;
  std::vector<double> roc(kCurveParts + 1), recall(kCurveParts + 1);
  for (int64_t c = 0; c < scores.classes; ++c) {
    const auto rest = one_against_rest(probabilities, scores.labels, scores.classes, c);
    const auto own = std::count(rest.positive.begin(), rest.positive.end(), true);
    if (own == 0 || own == std::ssize(rest.positive)) continue;
    area += auroc(rest), precision += average_precision(rest), counted += 1;
    add_roc(roc_curve(rest), roc);
    add_precision(precision_recall_curve(rest), recall);
  }
  if (counted == 0)
    fail_usage("all images have one class, but AUROC needs two: take a set with at least two classes");
  out.numbers.emplace_back("auroc", area / counted);
  out.numbers.emplace_back("average_precision", precision / counted);
  for (size_t k = 0; k <= kCurveParts; ++k) {
    const double x = static_cast<double>(k) / kCurveParts;
    out.roc.push_back({x, roc[k] / counted});
    out.precision_recall.push_back({x, recall[k] / counted});
  }
}

// Copies of the chosen samples.
struct ChosenScores {
  std::vector<float> logits;
  std::vector<int64_t> labels;
  int64_t classes = 0;
  LabelledScores view() const { return {logits, labels, classes}; }
};

ChosenScores choose(const LabelledScores& scores, std::span<const int64_t> samples) {
  ChosenScores out{{}, {}, scores.classes};
  for (const int64_t i : samples) {
    const auto row = scores.row(i);
    out.logits.insert(out.logits.end(), row.begin(), row.end());
    out.labels.push_back(scores.labels[static_cast<size_t>(i)]);
  }
  return out;
}

int64_t set_aside(int64_t samples, const PredictionOptions& options) {
  return std::llround(options.temperature_share * static_cast<double>(samples));
}

// Returns the order in which samples are set aside.
std::vector<int64_t> temperature_order(int64_t samples, const PredictionOptions& options) {
  return RandomStream(options.seed, "temperature").permutation(samples);
}

void measure_temperature(const LabelledScores& scores, const PredictionOptions& options,
                         PredictionMeasures& out) {
  if (options.temperature_share <= 0) return;
  const int64_t aside = set_aside(scores.samples(), options);
  if (aside < 1 || aside >= scores.samples())
    fail_usage("--temperature ", options.temperature_share, " of ", counted(scores.samples(), "image"),
               " leaves ", aside < 1 ? "none to fit on" : "none to measure");
  const auto order = temperature_order(scores.samples(), options);
  const std::span<const int64_t> all(order);
  const ChosenScores fitted = choose(scores, all.first(static_cast<size_t>(aside)));
  ChosenScores rest = choose(scores, all.subspan(static_cast<size_t>(aside)));
  out.temperature = fit_temperature(fitted.logits, fitted.labels, scores.classes);
  const auto before = meter_of(rest.view());
  for (float& logit : rest.logits) logit = static_cast<float>(logit / out.temperature);
  const auto after = meter_of(rest.view());
  out.numbers.emplace_back("temperature", out.temperature);
  out.numbers.emplace_back("rest_ece", before.calibration(options.bins).ece);
  out.numbers.emplace_back("rest_ece_scaled", after.calibration(options.bins).ece);
  out.numbers.emplace_back("rest_nll_scaled", after.nll());
}

}  // namespace

std::vector<bool> hits(const LabelledScores& scores) {
  std::vector<bool> out;
  for (int64_t i = 0; i < scores.samples(); ++i)
    out.push_back(best_class(scores.row(i)) == scores.labels[static_cast<size_t>(i)]);
  return out;
}

std::vector<int64_t> temperature_samples(int64_t samples, const PredictionOptions& options) {
  std::vector<int64_t> order = temperature_order(samples, options);
  order.resize(static_cast<size_t>(std::clamp<int64_t>(set_aside(samples, options), 0, samples)));
  return order;
}

PredictionMeasures measure_predictions(const LabelledScores& scores, const PredictionOptions& options) {
  PredictionMeasures out;
  const std::vector<double> likely = probabilities(scores.logits, scores.classes);
  const auto meter = meter_of(scores);
  std::vector<int64_t> confusion(static_cast<size_t>(scores.classes * scores.classes));
  ClasswiseCalibration by_class(scores.classes, options.bins);
  int64_t right = 0;
  for (int64_t i = 0; i < scores.samples(); ++i) {
    const int64_t label = scores.labels[static_cast<size_t>(i)], best = best_class(scores.row(i));
    right += best == label;
    ++confusion[static_cast<size_t>(label * scores.classes + best)];
    by_class.add(std::span(likely).subspan(static_cast<size_t>(i * scores.classes),
                                           static_cast<size_t>(scores.classes)),
                 label);
  }
  out.accuracy = wilson(right, scores.samples());
  out.calibration = meter.calibration(options.bins);
  out.numbers = {{"top1", meter.top(1)},
                 {"top1_low", out.accuracy.low},
                 {"top1_high", out.accuracy.high},
                 {"top5", meter.top(5)},
                 {"balanced_accuracy", balanced_accuracy(confusion, scores.classes)},
                 {"kappa", kappa(confusion, scores.classes)},
                 {"mcc", matthews(confusion, scores.classes)}};
  measure_areas(likely, scores, out);
  out.numbers.emplace_back("nll", meter.nll());
  out.numbers.emplace_back("brier", meter.brier());
  out.numbers.emplace_back("ece", out.calibration.ece);
  out.numbers.emplace_back("ece_equal_mass", meter.adaptive_ece(options.bins));
  out.numbers.emplace_back("ece_classwise", by_class.mean());
  out.numbers.emplace_back("max_calibration_error", out.calibration.max);
  measure_temperature(scores, options, out);
  return out;
}

}  // namespace tessera::eval
