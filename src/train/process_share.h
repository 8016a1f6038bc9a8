// The share of one of several processes in a run, found without starting them.
#pragma once

#include <cstdint>
#include <string>

#include "recipe/recipe.h"
#include "tasks/base/task.h"

namespace tessera::train {

// Bytes that the fullest process holds, and that a process exchanges in a step.
struct ProcessShare {
  int64_t processes = 1, replicate = 1, shard = 1, tensor = 1, pipeline = 1, zero = 0;
  int64_t holders() const { return pipeline * shard * tensor; }  // of one copy, with ZeRO or a pipeline
  bool divided() const { return zero > 0 || pipeline > 1; }
  // Gradients: at the end of a backward pass. Optimiser: its state. Average: the moving average.
  // Whole: weights of other processes that a pass needs at once, at stage 3.
  uint64_t weights = 0, gradients = 0, optimiser = 0, average = 0, whole = 0;
  uint64_t reduced = 0;    // all-reduce: of this process's tensor
  uint64_t scattered = 0;  // reduce-scatter: sent to others
  uint64_t gathered = 0;   // all-gather: received from others
  uint64_t offloaded =
      0;  // in main memory, with parallel.offload: the optimiser's state, and copies of weights and gradients
  uint64_t held() const { return weights + gradients + optimiser + average + whole; }
};

// Returns the share in a run over this number of processes. `task`: the recipe's, on the meta device. Throws a usage error
// if [parallel] does not divide the processes.
ProcessShare share_of_process(const Recipe& recipe, const tasks::Task& task, int64_t processes);

// Returns the number of values that the optimiser keeps for these parameters.
uint64_t optimiser_values(const OptimiserSpec& spec, const NamedTensors& parameters);

}  // namespace tessera::train
