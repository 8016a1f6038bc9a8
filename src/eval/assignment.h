// Minimum-cost assignment of rows to columns (Kuhn 1955) by shortest augmenting paths (Jonker & Volgenant
// 1987).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct Assignment {
  std::vector<int64_t> rows, columns;  // pairs, rows ascending; min(rows, columns) of them
};

// Returns a minimum-cost assignment. `cost` is [rows, columns], row-major. Throws Error with the entry if one
// is not finite. Takes at most min(rows, columns)^2 * max(rows, columns) steps.
Assignment cheapest_assignment(std::span<const double> cost, int64_t rows, int64_t columns);

}  // namespace tessera::eval
