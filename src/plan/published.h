// Published training throughputs, and the fit of the cost model's constants on them.
#pragma once

#include <string>
#include <vector>

#include "plan/cost.h"

namespace tessera::plan {

struct Published {
  std::string id{}, source{};
  Cluster cluster{};
  Transformer model{};
  Layout layout{};
  Arithmetic arithmetic{};
  double step_seconds = 0;
  double memory_bytes = 0;  // per chip; 0 = not given
};

// Reads the columns of bench/plan/published.csv. Throws a usage error with line and column.
std::vector<Published> read_published(const std::string& path);

// A predicted point. `error`: predicted over published, minus 1.
struct Prediction {
  std::string id{}, source{};
  double seconds = 0, published = 0, memory_bytes = 0, published_bytes = 0;
  double error() const { return seconds / published - 1; }
};
Prediction predict(const Published& point, const Constants& constants);

// Fits constants to minimise Huber's loss of the logarithms of predicted over published times. A weak pull
// towards the priors keeps constants that the points do not determine.
Constants fit_constants(const std::vector<Published>& points, const Constants& start = prior_constants());

// Predicts each point with constants fitted without its fold, which is every folds-th point of the file.
std::vector<Prediction> cross_validate(const std::vector<Published>& points, int folds = 5);

// Error statistics over predictions.
struct Errors {
  double median = 0, within_10 = 0, within_25 = 0;
};
Errors errors_of(const std::vector<Prediction>& predictions);

}  // namespace tessera::plan
