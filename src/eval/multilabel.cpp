#include "eval/multilabel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace tessera::eval {
namespace {

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct Counts {
  double hit = 0, said = 0, wanted = 0;
  void add(bool yes, bool target) {
    hit += yes && target;
    said += yes;
    wanted += target;
  }
  double f1() const { return share(2 * hit, said + wanted); }
};

}  // namespace

double average_precision(std::span<const float> scores, std::span<const float> targets) {
  check(scores.size() == targets.size(), "metric: ", scores.size(), " scores for ", targets.size(),
        " targets");
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto before = [&](size_t a, size_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b]))
      return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  };
  std::sort(order.begin(), order.end(), before);
  double seen = 0, hits = 0, sum = 0;
  for (size_t i = 0; i < order.size();) {
    const double hits_before = hits;
    const size_t first = order[i];
    for (; i < order.size() && !before(first, order[i]); ++i) {
      seen += 1;
      hits += targets[order[i]] > 0.5f ? 1 : 0;
    }
    sum += (hits - hits_before) * hits / seen;
  }
  return hits > 0 ? sum / hits : -1;
}

MultiLabelScores multilabel_scores(std::span<const float> scores, std::span<const float> targets,
                                   int64_t classes, double threshold) {
  check(classes > 0 && scores.size() == targets.size() && scores.size() % static_cast<size_t>(classes) == 0,
        "metric: ", scores.size(), " scores and ", targets.size(), " targets for ", classes, " classes");
  const size_t n = static_cast<size_t>(classes), samples = scores.size() / n;
  MultiLabelScores result;
  Counts all;
  double with_positive = 0;
  std::vector<float> column(samples), wanted(samples);
  std::vector<bool> exact(samples, true);
  for (size_t c = 0; c < n; ++c) {
    Counts one;
    for (size_t i = 0; i < samples; ++i) {
      column[i] = scores[i * n + c], wanted[i] = targets[i * n + c];
      const bool yes = static_cast<double>(column[i]) > threshold, target = wanted[i] > 0.5f;
      one.add(yes, target), all.add(yes, target);
      if (yes != target) exact[i] = false;
    }
    result.average_precision.push_back(average_precision(column, wanted));
    if (one.wanted == 0) continue;
    with_positive += 1;
    result.map += result.average_precision.back();
    result.macro_f1 += one.f1();
  }
  result.map = share(result.map, with_positive);
  result.macro_f1 = share(result.macro_f1, with_positive);
  result.micro_f1 = all.f1();
  result.exact_match =
      share(static_cast<double>(std::count(exact.begin(), exact.end(), true)), static_cast<double>(samples));
  return result;
}

}  // namespace tessera::eval
