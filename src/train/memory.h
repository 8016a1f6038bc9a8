// How much memory training takes, found by trying with one and two samples.
#pragma once

#include <cstdint>

#include "tasks/base/task.h"

namespace tessera::train {

struct Recipe;
struct RunPlan;

// Bytes of the weights in memory, and whether this machine has fewer.
uint64_t weight_bytes(const Recipe& recipe, const RunPlan& plan);
bool exceeds_memory(const Recipe& recipe, const RunPlan& plan);

// What a pass allocates at its height besides weights and gradients: `fixed` and, for each sample,
// `per_sample` bytes.
struct ActivationBytes {
  int64_t fixed = 0, per_sample = 0;
};
// Of a forward and backward pass of the task on the CPU; its gradients are left set. `side` of the images in
// pixels.
ActivationBytes measure_training(tasks::Task& task, int64_t side, tasks::Precision precision);
// Of a forward pass without gradients.
ActivationBytes measure_evaluation(tasks::Task& task, int64_t side, tasks::Precision precision);

// Inputs of zeros for so many samples of every stream of the task, prepared as a step's are.
tasks::Inputs example_inputs(const tasks::Task& task, int64_t samples, int64_t side, torch::Device device,
                             tasks::Precision precision);

}  // namespace tessera::train
