// Matrices as coloured squares: confusion matrices, similarities.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::report {

// A confusion matrix: counts[true * classes + predicted].
struct Confusion {
  std::vector<std::string> class_names;
  std::vector<int64_t> counts;

  size_t classes() const { return class_names.size(); }
  int64_t count(size_t truth, size_t predicted) const { return counts[truth * classes() + predicted]; }
  int64_t row_total(size_t truth) const;
  int64_t column_total(size_t predicted) const;
};

// Draws rows of true classes and columns of predictions; shade and number are the share of the row, and the
// diagonal is correct. Throws on more than `kMostClasses` classes, on counts that are not classes x classes,
// or on a negative count.
constexpr size_t kMostClasses = 64;
std::string confusion_chart(const Confusion& confusion, double width = 640);

struct ConfusedPair {
  size_t truth = 0, predicted = 0;
  int64_t count = 0;
  double share = 0;  // share of the true class
};

// Returns the most frequent mistakes, most frequent first.
std::vector<ConfusedPair> most_confused(const Confusion& confusion, size_t at_most);

void check_confusion(const Confusion& confusion);

}  // namespace tessera::report
