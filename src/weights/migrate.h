// Converts recipes of earlier versions to the current keys. Old names occur only here.
#pragma once

#include "core/value.h"

namespace tessera::train {

// Moves every old key of a recipe (from a file, command line, checkpoint or weights file) to its current
// place:
//
//   train.loss, target_threshold, label_smoothing, class_weights  ->  task.…
//   [mixup], [distil]                                              ->  [task.mixup], [task.distil]
//   [soft_mask] share, mode, shape, cutoff_epoch                   ->  model.soft_mask, soft_mask_mode, …
//
// Throws a usage error if the old and the new key are both given, or if the target of a move is not a table.
Value migrate_recipe(Value table);

// Migrates one layer of a recipe that is merged from several. The defaults of the old section [soft_mask]
// (mode "soft"; a share of 0 turns it off for every model) apply only after all layers are merged. A mark for
// migrate_recipe stays in the table. Throws as migrate_recipe does.
Value migrate_layer(Value table);
// merge() for two such layers.
void merge_layers(Value& base, const Value& over);

// Migrates the state in a checkpoint's manifest. Early versions stored only the class names of the task's
// metadata, the first version stored none.
Value migrate_state(Value state);

}  // namespace tessera::train
