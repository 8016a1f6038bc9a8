// Retrieval: for each query, does one of the things that belong to it stand among the first k?
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// The place, from 0, of the best of the items that belong to a query among all items by falling score; `relevant` are
// their indices. Another item with an equal score counts as before it; a score that is no number is worse than all. -1
// where nothing belongs to the query.
int64_t rank_of_first(std::span<const float> scores, std::span<const int64_t> relevant);

// Ranks of many queries, and what they say.
class RetrievalMeter {
 public:
  void add(int64_t rank) { ranks_.push_back(rank); }
  int64_t queries() const { return static_cast<int64_t>(ranks_.size()); }
  // Share of queries whose rank is below k (R@k); a rank of -1, where nothing belongs to a query, counts as missed.
  double recall(int64_t k) const;
  // The middle of the ranks counted from 1 (the lower of two), 0 without queries.
  int64_t median_rank() const;

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace tessera::eval
