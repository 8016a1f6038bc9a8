// What a training run computes, in multiply-adds: what results are compared at (Alkin et al. 2024, Figure 3
// and Section B.2).
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/model.h"
#include "recipe/recipe.h"
#include "tasks/base/task.h"
#include "train/trainer.h"

namespace tessera::train {

// Multiply-adds of each block for one image of side `size`, in the order in which stochastic depth counts
// blocks; the embedding, what stands between stages, and the head are not among them.
std::vector<double> block_macs(const models::ModelSpec& spec, int64_t size);

// Multiply-adds of the forward pass for one sample of side `size` in training: a block that is dropped with
// probability p computes 1 - p of its own on average.
double forward_macs(const tasks::Task& task, int64_t size);

// Sets plan.training_macs, of one sample of the run, and plan.total_macs, of all of them. The backward pass
// counts twice the forward one, also of frozen blocks; a teacher, images that only it judges, and evaluations
// do not count. Without data the total is known where the recipe says its steps, else 0.
void plan_compute(const Recipe& recipe, const tasks::Task& task, RunPlan& plan);

}  // namespace tessera::train
