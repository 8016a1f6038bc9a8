// Compute of a training run in multiply-adds, to compare results at equal cost (Alkin et al. 2024, Figure 3
// and Section B.2).
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/model.h"
#include "recipe/recipe.h"
#include "tasks/base/task.h"
#include "train/trainer.h"

namespace tessera::train {

// Returns multiply-adds of each block for one image of side `size`, in the block order of stochastic depth.
// Excludes the embedding, layers between stages, and the head.
std::vector<double> block_macs(const models::ModelSpec& spec, int64_t size);

// Returns multiply-adds of the forward pass for one training sample of side `size`: a block dropped with
// probability p counts 1 - p of its own.
double forward_macs(const tasks::Task& task, int64_t size);

// Sets plan.training_macs, for one sample of the run, and plan.total_macs, for all. The backward pass counts
// twice the forward pass, frozen blocks included. Teachers, images for distillation only, and evaluations do
// not count. Without data the total is known only if the recipe sets its steps, else 0.
void plan_compute(const Recipe& recipe, const tasks::Task& task, RunPlan& plan);

}  // namespace tessera::train
