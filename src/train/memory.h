// Memory use of training, measured with one and two samples.
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/model.h"
#include "recipe/recipe.h"
#include "tasks/base/task.h"
#include "train/trainer.h"

namespace tessera::train {

struct Recipe;
struct RunPlan;

// Returns the bytes of the weights in memory, and true if a share of them exceeds this machine's main memory.
uint64_t weight_bytes(const Recipe& recipe, const RunPlan& plan);
bool exceeds_memory(const Recipe& recipe, const RunPlan& plan, int64_t processes = 1);

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

// Returns inputs of zeros, `samples` samples for every stream of the task, prepared like those of a step.
tasks::Inputs example_inputs(const tasks::Task& task, int64_t samples, int64_t side, torch::Device device,
                             tasks::Precision precision);

// Compute of a training run in multiply-adds, to compare results at equal cost (Alkin et al. 2024, Figure 3
// and Section B.2).

// Returns multiply-adds of each block for one image of side `size`, in the block order of stochastic depth.
// Excludes the embedding, layers between stages, and the head.
std::vector<double> block_macs(const models::ModelSpec& spec, int64_t size);

// Returns multiply-adds of the forward pass for one training sample of side `size`: a block dropped with
// probability p counts 1 - p of its own.
double forward_macs(const tasks::Task& task, int64_t size);

// Sets plan.training_macs, for one sample of the run, and plan.total_macs, for all. The backward pass counts
// twice the forward pass, frozen blocks included. Teachers, images used only for distillation, and
// evaluations do not count. Without data the total is known only if the recipe sets its steps, else 0.
void plan_compute(const Recipe& recipe, const tasks::Task& task, RunPlan& plan);

}  // namespace tessera::train
