// The order of a pipeline's work, as data.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::plan {

enum class Work { idle, forward, backward };

// The work of each stage in equal slots: a forward pass takes one slot, a backward pass two.
struct Slot {
  Work work = Work::idle;
  int64_t microbatch = 0;
};
using Schedule = std::vector<std::vector<Slot>>;  // [stage][slot], all of one length

// One forward, one backward (Narayanan et al. 2021): stage s keeps min(m, p - s) microbatches.
Schedule one_forward_one_backward(int64_t stages, int64_t microbatches);

// Returns the idle slots of a stage over its busy ones.
double bubble_of(const Schedule& schedule);

}  // namespace tessera::plan
