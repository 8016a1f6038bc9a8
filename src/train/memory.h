// Memory use of training, measured with one and two samples.
#pragma once

#include <cstdint>

#include "tasks/base/task.h"

namespace tessera::train {

struct Recipe;
struct RunPlan;

// Returns the bytes of the weights in memory, and whether they exceed this machine's.
uint64_t weight_bytes(const Recipe& recipe, const RunPlan& plan);
bool exceeds_memory(const Recipe& recipe, const RunPlan& plan);

// Peak allocation of a pass in addition to weights and gradients: `fixed` bytes plus `per_sample` bytes for
// each sample.
struct ActivationBytes {
  int64_t fixed = 0, per_sample = 0;
};
// Measures a forward and backward pass of the task on the CPU; leaves gradients set. `side`: image side in
// pixels.
ActivationBytes measure_training(tasks::Task& task, int64_t side, tasks::Precision precision);
// Measures a forward pass without gradients.
ActivationBytes measure_evaluation(tasks::Task& task, int64_t side, tasks::Precision precision);

// Returns zero inputs of `samples` samples for every stream of the task, prepared like those of a step.
tasks::Inputs example_inputs(const tasks::Task& task, int64_t samples, int64_t side, torch::Device device,
                             tasks::Precision precision);

}  // namespace tessera::train
