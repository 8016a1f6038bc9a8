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
// A usage error where the old and the new key are both given, or where what a key moves into is no table.
Value migrate_recipe(Value table);

// The same for a file or settings that are laid over others, and for the others. What the old section
// [soft_mask] left out (its mode was "soft", a share of 0 was off for every model) is known only when all
// layers are merged: a mark for migrate_recipe stays in the table.
Value migrate_layer(Value table);
// merge() of two such layers.
void merge_layers(Value& base, const Value& over);

// The state that a checkpoint's manifest keeps: early ones had the class names alone of what a task says of
// itself, the first none.
Value migrate_state(Value state);

}  // namespace tessera::train
