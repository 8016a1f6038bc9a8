#include "eval/numerics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace tessera::eval {
namespace {

double total(const std::vector<double>& cost, int64_t columns, const Assignment& pairs) {
  double sum = 0;
  for (size_t i = 0; i < pairs.rows.size(); ++i)
    sum += cost[static_cast<size_t>(pairs.rows[i] * columns + pairs.columns[i])];
  return sum;
}

// Tries every way to give each row its own column (rows <= columns).
double cheapest_by_trying(const std::vector<double>& cost, int64_t rows, int64_t columns) {
  std::vector<int64_t> order(static_cast<size_t>(columns));
  std::iota(order.begin(), order.end(), int64_t{0});
  double best = 1e300;
  do {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r)
      sum += cost[static_cast<size_t>(r * columns + order[static_cast<size_t>(r)])];
    best = std::min(best, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Assignment, IsTheCheapestOfAll) {
  for (int64_t rows = 0; rows <= 5; ++rows)
    for (int64_t columns = rows; columns <= 6; ++columns)
      for (uint64_t draw = 0; draw < 8; ++draw) {
        RandomStream random(draw, "costs", static_cast<uint64_t>(rows), static_cast<uint64_t>(columns));
        std::vector<double> cost(static_cast<size_t>(rows * columns));
        // Every other draw uses integers, so that ties occur.
        for (double& c : cost)
          c = draw % 2 == 0 ? random.normal() : static_cast<double>(random.integer(-2, 2));
        const Assignment pairs = cheapest_assignment(cost, rows, columns);
        EXPECT_EQ(static_cast<int64_t>(pairs.rows.size()), rows);
        EXPECT_NEAR(total(cost, columns, pairs), rows == 0 ? 0 : cheapest_by_trying(cost, rows, columns),
                    1e-12);
        std::vector<double> turned(cost.size());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            turned[static_cast<size_t>(c * rows + r)] = cost[static_cast<size_t>(r * columns + c)];
        const Assignment back = cheapest_assignment(turned, columns, rows);
        EXPECT_TRUE(std::is_sorted(back.rows.begin(), back.rows.end()));
        EXPECT_NEAR(total(turned, rows, back), total(cost, columns, pairs), 1e-12);
      }
}

TEST(Assignment, CostsThatAreNoNumbersAreRefused) {
  const std::vector<double> cost = {1, 2, 3, std::numeric_limits<double>::quiet_NaN()};
  try {
    cheapest_assignment(cost, 2, 2);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "assignment: the cost of row 1, column 1 is not finite");
  }
}

}  // namespace
}  // namespace tessera::eval
