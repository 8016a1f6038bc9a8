#include "eval/retrieval.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace tessera::eval {

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
