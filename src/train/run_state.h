// Where a run stands between two steps: what a checkpoint keeps besides tensors.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/value.h"
#include "data/loading/loader.h"
#include "train/setup.h"

namespace tessera::train {

struct RunState {
  int64_t step = 0;                 // updates done
  data::LoaderPosition position;    // of the next batch
  bool evaluation_pending = false;  // interrupted before or while evaluating after `step`
  int64_t best_step = -1;           // -1: no evaluation yet
  double best_metric = 0;
  double seconds = 0;          // of training, all processes of the run together
  uint64_t metrics_bytes = 0;  // of metrics.jsonl
  Value meter;                 // Meter::state
  Value task;                  // Task::state
  Value loss_scale;            // LossScale::state; a run in fp16 has one
  int64_t optimiser_steps = 0, ema_updates = 0;
  int64_t skipped = 0, skipped_in_row = 0;  // steps without a finite loss and gradient
  std::set<std::string> bad_pictures;       // that were replaced, in all processes: "name: what is wrong"
};

// With the recipe, its hash, the numbers of processes and threads, the seed and the data's fingerprints, for
// check_same_run.
Value write_state(const RunState& state, const Setup& setup);
// Of the checkpoint of that step. `where` (the manifest) stands in front of errors: what is missing, out of its
// range, or contradicts the step.
RunState read_state(const Value& value, int64_t step, const std::string& where);

// Refuses to continue a checkpoint with another recipe (naming the key), other data or, unless allowed,
// another number of threads. Another number of processes is welcome: the line that says so, else "".
std::string check_same_run(const Value& stored, const Setup& setup, bool allow_other_threads,
                           const std::string& where);

}  // namespace tessera::train
