// The cheapest assignment of rows to columns (Kuhn 1955), by shortest augmenting paths (Jonker & Volgenant 1987).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct Assignment {
  std::vector<int64_t> rows, columns;  // pairs, rows ascending; min(rows, columns) of them
};

// `cost` [rows, columns], row after row, every number finite (else an error that names the entry). Takes
// min(rows, columns)^2 * max(rows, columns) steps at most. Where several are the cheapest, one of them.
Assignment cheapest_assignment(std::span<const double> cost, int64_t rows, int64_t columns);

}  // namespace tessera::eval
