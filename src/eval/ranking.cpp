#include "eval/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace tessera::eval {
namespace {

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

double f1(int64_t hit, int64_t said, int64_t wanted) {
  return share(2 * static_cast<double>(hit), static_cast<double>(said + wanted));
}

// Returns samples by descending score, NaN last.
struct Falling {
  explicit Falling(std::span<const float> of) : scores(of), order(of.size()) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(a, b); });
  }
  bool before(size_t a, size_t b) const {
    if (std::isnan(scores[a]) || std::isnan(scores[b]))
      return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  }
  // Calls visit(first, seen, hits) after each group of equal scores, with counts up to its end.
  template <class Visit>
  void each_score(std::span<const float> targets, const Visit& visit) const {
    double seen = 0, hits = 0;
    for (size_t i = 0; i < order.size();) {
      const size_t first = order[i];
      for (; i < order.size() && !before(first, order[i]); ++i) {
        seen += 1;
        hits += targets[order[i]] > 0.5f ? 1 : 0;
      }
      visit(first, seen, hits);
    }
  }
  std::span<const float> scores;
  std::vector<size_t> order;
};

void check_sizes(std::span<const float> scores, std::span<const float> targets) {
  check(scores.size() == targets.size(), "metric: ", scores.size(), " scores for ", targets.size(),
        " targets");
}

}  // namespace

double average_precision(std::span<const float> scores, std::span<const float> targets) {
  check_sizes(scores, targets);
  double before = 0, sum = 0;
  Falling(scores).each_score(targets, [&](size_t, double seen, double hits) {
    sum += (hits - before) * hits / seen;
    before = hits;
  });
  return before > 0 ? sum / before : -1;
}

BestThreshold best_threshold(std::span<const float> scores, std::span<const float> targets) {
  check_sizes(scores, targets);
  const auto wanted = static_cast<double>(std::ranges::count_if(targets, [](float t) { return t > 0.5f; }));
  BestThreshold best;
  if (wanted == 0) return best;
  Falling(scores).each_score(targets, [&](size_t first, double seen, double hits) {
    const double f1 = 2 * hits / (seen + wanted);
    if (f1 > best.f1 && !std::isnan(scores[first]))
      best = {static_cast<double>(scores[first]), f1, hits / seen, hits / wanted};
  });
  return best;
}

LabelScores label_scores(std::span<const float> scores, std::span<const float> targets, double threshold) {
  LabelScores one = {.average_precision = average_precision(scores, targets)};
  for (size_t i = 0; i < scores.size(); ++i) {
    const bool yes = static_cast<double>(scores[i]) > threshold, target = targets[i] > 0.5f;
    one.hit += yes && target;
    one.said += yes;
    one.wanted += target;
  }
  return one;
}

MultiLabelScores multilabel_scores(std::span<const LabelScores> by_class, int64_t exact, int64_t samples) {
  MultiLabelScores result;
  int64_t hit = 0, said = 0, wanted = 0;
  double with_positive = 0;
  for (const LabelScores& one : by_class) {
    hit += one.hit, said += one.said, wanted += one.wanted;
    result.average_precision.push_back(one.average_precision);
    if (one.wanted == 0) continue;
    with_positive += 1;
    result.map += one.average_precision;
    result.macro_f1 += f1(one.hit, one.said, one.wanted);
  }
  result.map = share(result.map, with_positive);
  result.macro_f1 = share(result.macro_f1, with_positive);
  result.micro_f1 = f1(hit, said, wanted);
  result.exact_match = share(static_cast<double>(exact), static_cast<double>(samples));
  return result;
}

int64_t rank_of_first(std::span<const float> scores, std::span<const int64_t> relevant) {
  if (relevant.empty()) return -1;
  const auto value = [&](size_t i) {
    return scores[i] == scores[i] ? scores[i] : -std::numeric_limits<float>::infinity();
  };
  float best = -std::numeric_limits<float>::infinity();
  for (const int64_t item : relevant) {
    check(item >= 0 && item < std::ssize(scores), "retrieval: there is no item ", item, " among ",
          scores.size());
    best = std::max(best, value(static_cast<size_t>(item)));
  }
  int64_t rank = 0;
  for (size_t i = 0; i < scores.size(); ++i) rank += value(i) >= best;
  for (const int64_t item : relevant) rank -= value(static_cast<size_t>(item)) >= best;
  return rank;
}

double RetrievalMeter::recall(int64_t k) const {
  if (ranks_.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto found = std::count_if(ranks_.begin(), ranks_.end(), [&](int64_t r) { return r >= 0 && r < k; });
  return static_cast<double>(found) / static_cast<double>(ranks_.size());
}

int64_t RetrievalMeter::median_rank() const {
  if (ranks_.empty()) return 0;
  std::vector<int64_t> sorted;
  for (const int64_t rank : ranks_)
    sorted.push_back(rank < 0 ? std::numeric_limits<int64_t>::max() - 1 : rank);
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle + 1;
}

}  // namespace tessera::eval
