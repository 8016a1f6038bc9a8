// The time and memory of one layer on this machine, for the planner.
#pragma once

#include "plan/cost.h"
#include "recipe/recipe.h"

namespace tessera::train {

// Measures training steps of a recipe's task with one and three layers, on one and on four samples. Their
// differences are the cost of a layer and of a sample. Throws a usage error if the model's settings have no
// depth. Runs on the CPU or the recipe's device.
plan::MeasuredBlock measure_block(const Recipe& recipe);

}  // namespace tessera::train
