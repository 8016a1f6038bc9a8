// Matrices as coloured squares: confusion matrices, similarities.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::report {

// The classes that were confused: counts[true * classes + predicted].
struct Confusion {
  std::vector<std::string> class_names;
  std::vector<int64_t> counts;

  size_t classes() const { return class_names.size(); }
  int64_t count(size_t truth, size_t predicted) const { return counts[truth * classes() + predicted]; }
  int64_t row_total(size_t truth) const;
  int64_t column_total(size_t predicted) const;
};

// Rows are true classes, columns predictions, shade and number the share of the row; the diagonal is right.
// Up to `kMostClasses` classes; more are an error. Fails if counts is not classes x classes or holds a
// negative count.
constexpr size_t kMostClasses = 64;
std::string confusion_chart(const Confusion& confusion, double width = 640);

struct ConfusedPair {
  size_t truth = 0, predicted = 0;
  int64_t count = 0;
  double share = 0;  // of the true class
};

// The most frequent mistakes, most frequent first.
std::vector<ConfusedPair> most_confused(const Confusion& confusion, size_t at_most);

void check_confusion(const Confusion& confusion);

}  // namespace tessera::report
