// Metrics of classifiers with several classes a sample, class by class: any increasing function of the
// probability as score, targets above 0.5 as yes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Area under precision over recall without interpolation: sum of (recall_k - recall_{k-1}) precision_k over
// the distinct scores in falling order (samples of equal score enter together). NaN scores come last. -1 if
// there is no positive.
double average_precision(std::span<const float> scores, std::span<const float> targets);

// One class of all samples. `threshold` is on the scores' scale: 0 for logits, 0.5 for probabilities.
struct LabelScores {
  double average_precision = -1;
  int64_t hit = 0, said = 0, wanted = 0;  // decisions score > threshold, targets, and both
};
LabelScores label_scores(std::span<const float> scores, std::span<const float> targets, double threshold = 0);

struct MultiLabelScores {
  double map = 0;                         // mean over the classes that have a positive; 0 if none has
  std::vector<double> average_precision;  // by class, -1 where there is no positive
  double micro_f1 = 0, macro_f1 = 0;      // of the decisions; macro over classes with a positive
  double exact_match = 0;                 // share of samples with every class right
};
// `exact` of the samples have every class right.
MultiLabelScores multilabel_scores(std::span<const LabelScores> by_class, int64_t exact, int64_t samples);

}  // namespace tessera::eval
