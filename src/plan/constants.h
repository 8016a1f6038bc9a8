// The constants of the cost model: at most 15, each with a unit and a meaning, fitted on published figures
// by `tessera plan --fit` (src/plan/published.h).
#pragma once

#include <array>
#include <cstddef>

namespace tessera::plan {

struct Constant {
  const char* name;
  double value;  // fitted on all published points
  double prior;  // the fit starts here and is pulled towards it
  const char* unit;
  const char* meaning;
};

enum class Coefficient : size_t {
  products_ampere,
  products_hopper,
  attention_ampere,
  attention_hopper,
  narrow,
  few_rows,
  passes,
  scores,
  hidden_data,
  link,
  network,
  launch,
  narrow_heads,
  straggle,
  cpu,
  count
};

struct Constants {
  std::array<double, static_cast<size_t>(Coefficient::count)> values{};
  double operator[](Coefficient coefficient) const { return values[static_cast<size_t>(coefficient)]; }
};

// The table with the fitted values.
const std::array<Constant, static_cast<size_t>(Coefficient::count)>& constant_table();
// The fitted values.
Constants fitted_constants();
// The values before any fit.
Constants prior_constants();

}  // namespace tessera::plan
