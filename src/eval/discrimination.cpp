#include "eval/discrimination.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// True and false positives among the samples of at least a score, for each distinct score from the highest.
struct Threshold {
  int64_t hits = 0, others = 0;
};

std::vector<Threshold> thresholds(const OneAgainstRest& samples) {
  std::vector<size_t> order(samples.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return samples.scores[a] > samples.scores[b]; });
  std::vector<Threshold> found;
  Threshold so_far;
  for (size_t i = 0; i < order.size(); ++i) {
    (samples.positive[order[i]] ? so_far.hits : so_far.others) += 1;
    const bool last = i + 1 == order.size() || samples.scores[order[i + 1]] != samples.scores[order[i]];
    if (last) found.push_back(so_far);
  }
  return found;
}

// Sums of the counts' rows (true classes) and columns (predicted classes).
struct Margins {
  std::vector<double> truth, predicted;
  double total = 0, right = 0;
};

Margins margins(std::span<const int64_t> counts, int64_t classes) {
  const auto n = static_cast<size_t>(classes);
  check(counts.size() == n * n, "metric: ", counts.size(), " counts for ", classes, " classes");
  Margins sums{std::vector<double>(n), std::vector<double>(n)};
  for (size_t t = 0; t < n; ++t)
    for (size_t p = 0; p < n; ++p) {
      const auto count = static_cast<double>(counts[t * n + p]);
      sums.truth[t] += count, sums.predicted[p] += count, sums.total += count;
      if (t == p) sums.right += count;
    }
  return sums;
}

// Draws a binomial number, share <= 1/2: normal approximation at high variance, else gaps between hits.
int64_t few(RandomStream& stream, int64_t trials, double share) {
  const auto n = static_cast<double>(trials);
  const double mean = n * share, variance = mean * (1 - share);
  if (share <= 0) return 0;
  if (variance > 100)
    return std::clamp<int64_t>(std::llround(mean + std::sqrt(variance) * stream.normal()), 0, trials);
  int64_t hits = 0;
  const double miss = std::log1p(-share);
  for (double at = 0;; ++hits) {
    at += 1 + std::floor(std::log1p(-stream.uniform()) / miss);
    if (at > n) return hits;
  }
}

}  // namespace

std::vector<double> probabilities(std::span<const float> logits, int64_t classes, double temperature) {
  check(classes > 0 && logits.size() % static_cast<size_t>(classes) == 0, "metric: ", logits.size(),
        " scores are not rows of ", classes, " classes");
  const auto n = static_cast<size_t>(classes);
  std::vector<double> out(logits.size());
  for (size_t row = 0; row < logits.size(); row += n) {
    const double largest = *std::max_element(logits.begin() + row, logits.begin() + row + n);
    double sum = 0;
    for (size_t c = row; c < row + n; ++c)
      sum += out[c] = std::exp((static_cast<double>(logits[c]) - largest) / temperature);
    for (size_t c = row; c < row + n; ++c) out[c] /= sum;
  }
  return out;
}

OneAgainstRest one_against_rest(std::span<const double> scores, std::span<const int64_t> labels,
                                int64_t classes, int64_t chosen) {
  check(scores.size() == labels.size() * static_cast<size_t>(classes), "metric: ", scores.size(),
        " scores for ", labels.size(), " samples of ", classes, " classes");
  OneAgainstRest out;
  for (size_t i = 0; i < labels.size(); ++i) {
    out.scores.push_back(scores[i * static_cast<size_t>(classes) + static_cast<size_t>(chosen)]);
    out.positive.push_back(labels[i] == chosen);
  }
  return out;
}

double auroc(const OneAgainstRest& samples) {
  const std::vector<Threshold> steps = thresholds(samples);
  check(!steps.empty() && steps.back().hits > 0 && steps.back().others > 0,
        "AUROC needs samples of the class and samples of others, there are ",
        steps.empty() ? 0 : steps.back().hits, " and ", steps.empty() ? 0 : steps.back().others);
  double area = 0;  // number of pairs; a tie counts as half
  Threshold before;
  for (const Threshold& step : steps) {
    area +=
        static_cast<double>(step.others - before.others) * static_cast<double>(step.hits + before.hits) / 2;
    before = step;
  }
  return area / (static_cast<double>(before.hits) * static_cast<double>(before.others));
}

double average_precision(const OneAgainstRest& samples) {
  const std::vector<Threshold> steps = thresholds(samples);
  check(!steps.empty() && steps.back().hits > 0, "average precision needs a sample of the class");
  double sum = 0;
  int64_t before = 0;
  for (const Threshold& step : steps) {
    sum += static_cast<double>(step.hits - before) * static_cast<double>(step.hits) /
           static_cast<double>(step.hits + step.others);
    before = step.hits;
  }
  return sum / static_cast<double>(before);
}

std::vector<CurvePoint> roc_curve(const OneAgainstRest& samples) {
  const std::vector<Threshold> steps = thresholds(samples);
  std::vector<CurvePoint> points = {{0, 0}};
  for (const Threshold& step : steps)
    points.push_back({ratio(static_cast<double>(step.others), static_cast<double>(steps.back().others)),
                      ratio(static_cast<double>(step.hits), static_cast<double>(steps.back().hits))});
  return points;
}

std::vector<CurvePoint> precision_recall_curve(const OneAgainstRest& samples) {
  const std::vector<Threshold> steps = thresholds(samples);
  std::vector<CurvePoint> points = {{0, 1}};
  for (const Threshold& step : steps)
    points.push_back({ratio(static_cast<double>(step.hits), static_cast<double>(steps.back().hits)),
                      static_cast<double>(step.hits) / static_cast<double>(step.hits + step.others)});
  std::reverse(points.begin(), points.end());
  return points;
}

double accuracy(std::span<const int64_t> counts, int64_t classes) {
  const Margins sums = margins(counts, classes);
  return ratio(sums.right, sums.total);
}

double balanced_accuracy(std::span<const int64_t> counts, int64_t classes) {
  const Margins sums = margins(counts, classes);
  double recalls = 0, present = 0;
  for (size_t c = 0; c < sums.truth.size(); ++c)
    if (sums.truth[c] > 0)
      recalls += static_cast<double>(counts[c * sums.truth.size() + c]) / sums.truth[c], present += 1;
  return ratio(recalls, present);
}

double kappa(std::span<const int64_t> counts, int64_t classes, bool quadratic) {
  const Margins sums = margins(counts, classes);
  const size_t n = sums.truth.size();
  double observed = 0, expected = 0;  // disagreement
  for (size_t t = 0; t < n; ++t)
    for (size_t p = 0; p < n; ++p) {
      const double apart = static_cast<double>(t) - static_cast<double>(p);
      const double weight = quadratic ? apart * apart : (t == p ? 0 : 1);
      observed += weight * static_cast<double>(counts[t * n + p]);
      expected += weight * ratio(sums.truth[t] * sums.predicted[p], sums.total);
    }
  return expected > 0 ? 1 - observed / expected : 0;
}

double matthews(std::span<const int64_t> counts, int64_t classes) {
  const Margins sums = margins(counts, classes);
  double both = 0, truth = 0, predicted = 0;
  for (size_t c = 0; c < sums.truth.size(); ++c) {
    both += sums.truth[c] * sums.predicted[c];
    truth += sums.truth[c] * sums.truth[c];
    predicted += sums.predicted[c] * sums.predicted[c];
  }
  const double all = sums.total * sums.total, spread = (all - predicted) * (all - truth);
  return spread > 0 ? (sums.right * sums.total - both) / std::sqrt(spread) : 0;
}

int64_t equal_width_bin(double probability, int64_t bins) {
  const auto edge = [&](int64_t i) { return static_cast<double>(i) / static_cast<double>(bins); };
  auto bin = static_cast<int64_t>(std::ceil(probability * static_cast<double>(bins))) - 1;
  bin = std::clamp<int64_t>(bin, 0, bins - 1);
  while (bin > 0 && probability <= edge(bin)) --bin;  // the product may have been rounded past the edge
  while (bin + 1 < bins && probability > edge(bin + 1)) ++bin;
  return bin;
}

ClasswiseCalibration::ClasswiseCalibration(int64_t classes, int64_t bins) : classes_(classes), bins_(bins) {
  check(classes > 0 && bins > 0, "metric: calibration of ", classes, " classes with ", bins, " bins");
  cells_.resize(static_cast<size_t>(classes * bins));
}

void ClasswiseCalibration::add(std::span<const double> row, int64_t label) {
  check(std::ssize(row) == classes_ && label >= 0 && label < classes_, "metric: ", row.size(),
        " probabilities and label ", label, " for ", classes_, " classes");
  ++samples_;
  for (int64_t c = 0; c < classes_; ++c) {
    const double probability = row[static_cast<size_t>(c)];
    if (std::isnan(probability)) continue;
    Bin& bin = cells_[static_cast<size_t>(c * bins_ + equal_width_bin(probability, bins_))];
    ++bin.count;
    bin.probability += probability;
    bin.hits += c == label ? 1 : 0;
  }
}

std::vector<double> ClasswiseCalibration::by_class() const {
  std::vector<double> errors(static_cast<size_t>(classes_));
  for (size_t c = 0; c < errors.size(); ++c) {
    for (size_t b = 0; b < static_cast<size_t>(bins_); ++b) {
      const Bin& bin = cells_[c * static_cast<size_t>(bins_) + b];
      errors[c] += std::abs(bin.hits - bin.probability);  // of sums: the division by the bin's count cancels
    }
    errors[c] = ratio(errors[c], static_cast<double>(samples_));
  }
  return errors;
}

double ClasswiseCalibration::mean() const {
  const std::vector<double> errors = by_class();
  return std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(classes_);
}

Interval wilson(int64_t hits, int64_t samples, double deviations) {
  return wilson_of_mean(samples > 0 ? static_cast<double>(hits) / static_cast<double>(samples) : 0, samples,
                        deviations);
}

Interval wilson_of_mean(double mean, int64_t samples, double deviations) {
  if (samples <= 0) return {0, 1};
  const auto n = static_cast<double>(samples);
  const double z2 = deviations * deviations;
  const double middle = (mean + z2 / (2 * n)) / (1 + z2 / n);
  const double half =
      deviations / (1 + z2 / n) * std::sqrt(std::max(0.0, mean * (1 - mean)) / n + z2 / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

PairedCounts compare_hits(const std::vector<bool>& first, const std::vector<bool>& second) {
  check(first.size() == second.size(), "paired comparison of ", first.size(), " samples with ", second.size(),
        ": both must be the same samples");
  PairedCounts counts{.samples = std::ssize(first)};
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] && second[i]) ++counts.both;
    if (first[i] && !second[i]) ++counts.only_first;
    if (!first[i] && second[i]) ++counts.only_second;
  }
  return counts;
}

McNemar mcnemar(const PairedCounts& counts) {
  const int64_t fewer = std::min(counts.only_first, counts.only_second);
  const auto n = static_cast<double>(counts.only_first + counts.only_second);
  if (n == 0) return {};
  double tail = 0;
  for (int64_t k = 0; k <= fewer; ++k) {
    const auto i = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
  }
  const double apart =
      std::max(0.0, std::abs(static_cast<double>(counts.only_first - counts.only_second)) - 1);
  McNemar test;
  test.exact_p = std::min(1.0, 2 * tail);
  test.chi2 = apart * apart / n;
  test.chi2_p = std::erfc(std::sqrt(test.chi2 / 2));
  return test;
}

Interval paired_bootstrap(const PairedCounts& counts, int64_t draws, uint64_t seed) {
  check(draws > 0 && counts.samples > 0, "bootstrap of ", counts.samples, " samples with ", draws, " draws");
  const auto n = static_cast<double>(counts.samples);
  // A resample of n pairs depends on two numbers only: how often only the first model is right, and only the
  // second.
  std::vector<double> differences;
  RandomStream stream(seed, "paired_bootstrap");
  const auto binomial = [&](int64_t trials, double share) -> int64_t {
    if (share > 0.5) return trials - few(stream, trials, 1 - share);
    return few(stream, trials, share);
  };
  for (int64_t d = 0; d < draws; ++d) {
    const int64_t apart =
        binomial(counts.samples, static_cast<double>(counts.only_first + counts.only_second) / n);
    const int64_t second =
        binomial(apart, ratio(static_cast<double>(counts.only_second),
                              static_cast<double>(counts.only_first + counts.only_second)));
    differences.push_back(static_cast<double>(2 * second - apart) / n);
  }
  std::sort(differences.begin(), differences.end());
  const auto quantile = [&](double share) {
    return differences[static_cast<size_t>(share * static_cast<double>(draws - 1))];
  };
  return {quantile(0.025), quantile(0.975)};
}

}  // namespace tessera::eval
