// State of a run between two steps: a checkpoint's content in addition to tensors.
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
  data::LoaderPosition position;    // position of the next batch
  bool evaluation_pending = false;  // the run was interrupted before or during the evaluation after `step`
  int64_t best_step = -1;           // -1: no evaluation yet
  double best_metric = 0;
  int64_t evaluations_since_best = 0;  // evaluations with a measured metric; for train.stop_early
  double seconds = 0;                  // of training, over all processes
  uint64_t metrics_bytes = 0;          // length of metrics.jsonl
  Value meter;                         // Meter::state
  Value task;                          // Task::state
  Value loss_scale;                    // LossScale::state; only for fp16
  Value noise_scale;                   // NoiseScale::state; only if the run measures it
  int64_t optimiser_steps = 0, ema_updates = 0;
  int64_t skipped = 0, skipped_in_row = 0;  // steps without a finite loss and gradient
  std::set<std::string> bad_pictures;       // bad images replaced in any process: "name: reason"
};

// Writes the state with the recipe, its hash, the numbers of processes and threads, the seed and the data's
// fingerprints, for check_same_run.
Value write_state(const RunState& state, const Setup& setup);
// Reads the state of the checkpoint at `step`. Throws errors beginning with `where` (the manifest) for
// missing or out-of-range values, or values that contradict the step.
RunState read_state(const Value& value, int64_t step, const std::string& where);

// Throws if a checkpoint has another recipe (with the key), other data or, unless allowed, another number of
// threads. If only the number of processes differs, returns a note, else "".
std::string check_same_run(const Value& stored, const Setup& setup, bool allow_other_threads,
                           const std::string& where);

}  // namespace tessera::train
