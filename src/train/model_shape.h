// A run's model for the planner: its shape, counted on the meta device, and the time and memory of one layer.
#pragma once

#include <string>

#include "plan/cost.h"
#include "recipe/recipe.h"
#include "tasks/base/task.h"

namespace tessera::train {

struct CountedRun {
  Recipe recipe;  // with the settings that task and data determine
  plan::Shape shape;
  plan::Arithmetic arithmetic;
  bool only_attention = true;  // false: layers with their own kernels, which no published figure covers
  bool language = false;       // published figures are for language models
};

// Counts parameters, multiply-adds and activations of a recipe's task: layers of equal shape become stacks;
// everything else is outside of them. Allocates nothing. Data may be missing.
CountedRun count_run(const Recipe& recipe);

// The stacks and the rest of a task. Layers are found by their names ("blocks.3.", "layers.0.") and grouped by
// the shapes of their parameters. `frozen`: patterns of parameters that do not train.
plan::Shape shape_of_task(const tasks::Task& task, int64_t side, const std::vector<std::string>& frozen);

// Returns the setting with the number of layers: the backbone's, or else that of the model that a language task trains; null
// if neither is a number.
Value* depth_of(Recipe& recipe);

// Measures training steps of a recipe's task with one and three layers, on one and on four samples. The
// differences are the cost of a layer and of a sample. Throws a usage error if the model's settings have no
// depth. Runs on the CPU or the recipe's device.
plan::MeasuredBlock measure_block(const Recipe& recipe);

}  // namespace tessera::train
