#include "eval/numerics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace tessera::eval {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Inserts rows one by one. The shortest path from the new row to a free column, with costs reduced by both
// sides' potentials, gives the pairs to reassign.
class Solver {
 public:
  Solver(std::span<const double> cost, int64_t rows, int64_t columns, bool transposed)
      : cost_(cost), rows_(rows), columns_(columns), transposed_(transposed) {
    row_potential_.assign(static_cast<size_t>(rows), 0);
    column_potential_.assign(static_cast<size_t>(columns), 0);
    row_of_.assign(static_cast<size_t>(columns), -1);
  }

  // Returns the row of each column, -1 = none.
  std::vector<int64_t> solve() {
    for (int64_t row = 0; row < rows_; ++row) take_in(row);
    return row_of_;
  }

 private:
  double cost(int64_t row, int64_t column) const {
    return cost_[static_cast<size_t>(transposed_ ? column * rows_ + row : row * columns_ + column)];
  }

  void take_in(int64_t first) {
    const auto columns = static_cast<size_t>(columns_);
    std::vector<double> distance(columns, kInfinity);
    std::vector<int64_t> before(columns, -1);  // the column before this one on the path
    std::vector<bool> done(columns, false);
    int64_t row = first, from = -1, last = -1;
    double reached = 0;
    while (last < 0) {
      const auto r = static_cast<size_t>(row);
      size_t nearest = columns;
      for (size_t c = 0; c < columns; ++c) {
        if (done[c]) continue;
        const double through =
            reached + cost(row, static_cast<int64_t>(c)) - row_potential_[r] - column_potential_[c];
        if (through < distance[c]) distance[c] = through, before[c] = from;
        const bool nearer = nearest == columns || distance[c] < distance[nearest] ||
                            (distance[c] == distance[nearest] && row_of_[c] < 0 && row_of_[nearest] >= 0);
        if (nearer) nearest = c;
      }
      reached = distance[nearest];
      done[nearest] = true;
      if (row_of_[nearest] < 0)
        last = static_cast<int64_t>(nearest);
      else
        row = row_of_[nearest], from = static_cast<int64_t>(nearest);
    }
    row_potential_[static_cast<size_t>(first)] += reached;
    for (size_t c = 0; c < columns; ++c) {
      if (!done[c]) continue;
      if (row_of_[c] >= 0) row_potential_[static_cast<size_t>(row_of_[c])] += reached - distance[c];
      column_potential_[c] -= reached - distance[c];
    }
    exchange(before, last, first);
  }

  // Gives each column of the path that ends at `last` the row of the one before it, and the first column the row `first`.
  void exchange(const std::vector<int64_t>& before, int64_t last, int64_t first) {
    for (int64_t column = last; column >= 0;) {
      const int64_t earlier = before[static_cast<size_t>(column)];
      row_of_[static_cast<size_t>(column)] = earlier < 0 ? first : row_of_[static_cast<size_t>(earlier)];
      column = earlier;
    }
  }

  std::span<const double> cost_;
  int64_t rows_, columns_;
  bool transposed_;
  std::vector<double> row_potential_, column_potential_;
  std::vector<int64_t> row_of_;
};

}  // namespace

Assignment cheapest_assignment(std::span<const double> cost, int64_t rows, int64_t columns) {
  check(rows >= 0 && columns >= 0 && static_cast<int64_t>(cost.size()) == rows * columns,
        "assignment: ", cost.size(), " costs, must be ", rows, " x ", columns);
  for (size_t i = 0; i < cost.size(); ++i)
    check(std::isfinite(cost[i]), "assignment: the cost of row ", static_cast<int64_t>(i) / columns,
          ", column ", static_cast<int64_t>(i) % columns, " is not finite");
  const bool transposed = rows > columns;  // the solver needs rows <= columns
  const std::vector<int64_t> partner =
      Solver(cost, std::min(rows, columns), std::max(rows, columns), transposed).solve();
  Assignment out;
  std::vector<int64_t> column_of(static_cast<size_t>(rows), -1);
  for (size_t i = 0; i < partner.size(); ++i) {
    if (partner[i] < 0) continue;
    const auto at = static_cast<int64_t>(i);
    column_of[static_cast<size_t>(transposed ? at : partner[i])] = transposed ? partner[i] : at;
  }
  for (int64_t row = 0; row < rows; ++row)
    if (column_of[static_cast<size_t>(row)] >= 0)
      out.rows.push_back(row), out.columns.push_back(column_of[static_cast<size_t>(row)]);
  return out;
}

}  // namespace tessera::eval
