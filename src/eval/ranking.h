// Metrics of rankings: the classes of a sample that has several, and the results of a query.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Metrics of classifiers with several classes per sample. Scores are any increasing function of the
// probability; targets above 0.5 are positive.

// Returns the area under the precision-recall curve without interpolation: sum of (recall_k - recall_{k-1})
// precision_k over the distinct scores in falling order (tied samples enter together). NaN scores come last.
// Returns -1 without a positive.
double average_precision(std::span<const float> scores, std::span<const float> targets);

// The result of one class. `threshold` is on the scores' scale: 0 for logits, 0.5 for probabilities.
struct LabelScores {
  double average_precision = -1;
  int64_t hit = 0, said = 0, wanted = 0;  // true positives, predicted (score > threshold), positive targets
};
LabelScores label_scores(std::span<const float> scores, std::span<const float> targets, double threshold = 0);

// The threshold with the largest F1 of one class, which is predicted from this score on. Highest of several.
struct BestThreshold {
  double threshold = 0, f1 = -1, precision = 0, recall = 0;  // f1 is -1 without a positive
};
BestThreshold best_threshold(std::span<const float> scores, std::span<const float> targets);

struct MultiLabelScores {
  double map = 0;                         // mean over the classes with a positive; 0 if none has one
  std::vector<double> average_precision;  // values by class, -1 without a positive
  double micro_f1 = 0, macro_f1 = 0;      // values at the threshold; macro over classes with a positive
  double exact_match = 0;                 // share of samples with every class right
};
// `exact`: number of samples with every class right.
MultiLabelScores multilabel_scores(std::span<const LabelScores> by_class, int64_t exact, int64_t samples);

// Retrieval: whether the first k results of a query include a relevant item.

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
