// Recipes as earlier versions wrote them, brought to today's keys: the one place that knows old names.
#pragma once

#include "core/value.h"

namespace tessera::train {

// Moves every old key of a recipe's tree (a file, the settings of a command line, what a checkpoint or a
// weights file holds) to where it stands today:
//
//   train.loss, target_threshold, label_smoothing, class_weights  ->  task.…
//   [mixup], [distil]                                              ->  [task.mixup], [task.distil]
//   [soft_mask] share, mode, shape, cutoff_epoch                   ->  model.soft_mask, soft_mask_mode, …
//
// A usage error where the old and the new key are both given.
Value migrate_recipe(Value table);

// The state that a checkpoint's manifest keeps: early ones had the class names alone of what a task says of
// itself, the first none.
Value migrate_state(Value state);

}  // namespace tessera::train
