// The one training loop.
//
//   Recipe recipe = load_recipe("recipes/demo.toml", {"train.output=runs/demo"});
//   RunSummary summary = run_training(recipe, {.observers = {&progress_bar}});
//
// A run directory holds: recipe.toml (resolved), metrics.jsonl, events.out.tfevents.*,
// checkpoints/step-000123/ and checkpoints/latest, best.safetensors, and at the end model.safetensors (the
// moving average where there is one).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/world.h"
#include "recipe/recipe.h"
#include "runs/run_directory.h"
#include "tasks/base/task.h"

namespace tessera::train {

// What the run will take, known before the first step.
struct RunPlan {
  std::string model, device, train_data, validation_data;
  int64_t parameters = 0, trainable_parameters = 0, macs = 0;  // macs: multiply-adds of one sample, forward
  double training_macs = 0;  // of one training sample, forward and backward (plan_compute)
  double total_macs = 0;     // of all samples of the run; 0 where their number is not known
  int64_t samples = 0, validation_samples = 0;
  int64_t steps = 0, steps_per_epoch = 0, batch_size = 0, images = 0;
  int threads = 1;
  int64_t processes = 1;
  uint64_t checkpoint_bytes = 0;  // one checkpoint, without what they share
  uint64_t shared_bytes = 0;      // frozen weights that checkpoints share
  uint64_t state_bytes = 0;       // in memory: weights, their average, and what the optimiser keeps
  uint64_t disk_bytes = 0;        // the most the run will hold at once
  uint64_t free_bytes = 0;        // on the output's file system
  uint64_t memory_bytes = 0;      // while training, of one process; plan_training alone finds it
};

// After every step; costs nothing but host counters. `loss` and `metrics` are means since the last reading,
// which happens every few steps (see `train.log_every`) and are repeated in between.
struct StepProgress {
  int64_t step = 0, steps = 0, epoch = 0, step_in_epoch = 0, steps_per_epoch = 0;
  double loss = 0;
  std::vector<tasks::Metric> metrics;
  double learning_rate = 0;
  double images_per_second = 0, wait_share = 0;  // since this process began to train
  double seconds = 0, seconds_left = 0;          // seconds: of all processes of this run together
};

struct EvaluationReport {
  int64_t step = 0;
  double epoch = 0;  // done so far
  int64_t samples = 0;
  std::vector<tasks::Metric> metrics;
  bool best = false;  // of the run so far
  double seconds = 0;
};

// Called from the training thread. Default: silence.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void started(const RunPlan&, int64_t /*first_step*/) {}
  virtual void progressed(const StepProgress&) {}
  virtual void logged(const StepProgress&) {
  }  // every log_every steps, after the line went into metrics.jsonl
  virtual void evaluating(int64_t /*done*/, int64_t /*samples*/) {}
  virtual void evaluated(const EvaluationReport&) {}
  virtual void checkpointed(const std::string& /*directory*/, uint64_t /*bytes*/, double /*seconds*/) {}
  // A line that people should see: what was loaded, resumed, replaced, fallen back on.
  virtual void note(const std::string& /*line*/) {}
};

enum class Resume {
  never,      // start; refuse a directory that already holds a run
  required,   // continue; fail if there is nothing to continue
  automatic,  // continue if there is something, else start
};

// With several processes all of them call run_training with the same recipe; the leader alone writes files
// and tells its observers.
struct TrainOptions {
  Resume resume = Resume::never;
  bool allow_other_threads = false;  // continue with another number of threads (no longer bit for bit)
  std::vector<Observer*> observers = {};
  parallel::World* world = nullptr;  // null: this process alone
  std::string profile = {};          // file for a Chrome trace of ten steps of the leader, from the third on
};

struct RunSummary {
  RunPlan plan;
  std::string output, model_file, best_file;
  std::vector<HistoryPoint> history;  // the whole run, also what earlier processes did
  tasks::Findings final;              // of the weights at the end, with what there is to show
  std::vector<tasks::MetricInfo> step_metrics;
  tasks::MetricInfo main_metric;
  double best_metric = 0;
  int64_t best_step = 0;
  double seconds = 0, images_per_second = 0, wait_share = 0;
  int64_t bad_images = 0;                    // replaced while training, or left out of the evaluation
  std::vector<parallel::Traffic> exchanges;  // of this process with the others, by kind
};

struct PlannedRun {
  Recipe recipe;  // with what the data and the pretrained file decide, as the run would keep it
  RunPlan plan;   // without data: no samples, and steps only where the recipe says them
  std::string missing_data, missing_weights;  // what the run would be refused for, "" = nothing
};

// What a run would take: builds the model, tries it with two pictures and opens the data, writes nothing. For
// --dry-run. Data or first weights that cannot be opened are no error here.
PlannedRun plan_training(const Recipe& recipe);

// Trains from the recipe's start, or from the newest valid checkpoint, to its end. SIGINT and SIGTERM (when
// catch_interrupts() was called, and once the first checkpoint is begun): a checkpoint, then Error of kind
// interrupted. A loss that is not a number:
// Error, with the newest good checkpoint left in place.
RunSummary run_training(const Recipe& recipe, const TrainOptions& options = {});

}  // namespace tessera::train
