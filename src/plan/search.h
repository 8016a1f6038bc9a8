// The search over all layouts of a training on a cluster.
#pragma once

#include <string>
#include <vector>

#include "plan/cost.h"

namespace tessera::plan {

struct Plan {
  Layout layout{};
  StepCost cost{};
};

struct SearchOptions {
  bool only_runnable = false;               // only layouts that this program can run
  size_t keep = 10;                         // plans in the result
  const MeasuredBlock* measured = nullptr;  // replaces formulas
  bool flash = true;
};

// Memory of a chip that a plan may use: 1 GB is left for drivers and libraries.
double usable_bytes(const Chip& chip);

// Returns all layouts that are possible on the cluster, whether or not they fit the memory.
std::vector<Layout> possible_layouts(const Shape& shape, const Cluster& cluster, int64_t batch);

// Returns the plans that fit the memory, fastest first; for each combination of data, tensor and pipeline
// degrees only the fastest. Empty if none fits.
std::vector<Plan> search(const Shape& shape, const Cluster& cluster, const Arithmetic& arithmetic,
                         const Constants& constants, const SearchOptions& options = {});

// The reason that nothing fits, and the remedy.
struct Shortfall {
  double missing_bytes = 0;    // per chip, in the layout that needs the least memory
  int64_t smallest_chips = 0;  // the fewest chips (by doubling) that would be enough; 0 = none found
  bool batch_divides = true;   // false: no layout divides the batch
};
Shortfall shortfall(const Shape& shape, const Cluster& cluster, const Arithmetic& arithmetic,
                    const SearchOptions& options = {});

}  // namespace tessera::plan
