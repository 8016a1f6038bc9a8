// Retrieval: whether a relevant item is among the first k results of a query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Returns the rank, from 0, of the best of the `relevant` items among all items by falling score. Other items
// with an equal score rank before it; a NaN score ranks last. Returns -1 if `relevant` is empty.
int64_t rank_of_first(std::span<const float> scores, std::span<const int64_t> relevant);

// The ranks of many queries, and their metrics.
class RetrievalMeter {
 public:
  void add(int64_t rank) { ranks_.push_back(rank); }
  int64_t queries() const { return static_cast<int64_t>(ranks_.size()); }
  // Returns the share of queries with a rank below k (R@k); a rank of -1 (nothing relevant) counts as missed.
  double recall(int64_t k) const;
  // Returns the median of the ranks, counted from 1 (the lower of two); 0 without queries.
  int64_t median_rank() const;

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace tessera::eval
