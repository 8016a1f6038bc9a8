// The training loop.
//
//   Recipe recipe = load_recipe("recipes/demo.toml", {"train.output=runs/demo"});
//   RunSummary summary = run_training(recipe, {.observers = {&progress_bar}});
//
// A run directory contains: recipe.toml (resolved), metrics.jsonl, events.out.tfevents.*,
// checkpoints/step-000123/ and checkpoints/latest, best.safetensors, and at the end model.safetensors (the
// moving average if there is one). Weights above 5 GB are files with an index, model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/traffic.h"
#include "recipe/recipe.h"
#include "runs/run_directory.h"
#include "tasks/base/task.h"

namespace tessera::parallel {
class World;
}

namespace tessera::train {

struct ProcessShare;  // process_share.h

// The resources of a run, estimated before the first step.
struct RunPlan {
  std::string model, device, train_data, validation_data;
  int64_t rounded_parameters = 0;                              // frozen ones in bfloat16
  int64_t parameters = 0, trainable_parameters = 0, macs = 0;  // macs: multiply-adds of one sample, forward
  double training_macs = 0;  // per training sample, forward and backward (plan_compute)
  double total_macs = 0;     // multiply-adds of the whole run; 0 if the number of samples is unknown
  int64_t samples = 0, validation_samples = 0;
  int64_t steps = 0, steps_per_epoch = 0, batch_size = 0, images = 0;
  int threads = 1;
  int64_t processes = 1, batch_processes = 1;  // all, and those that share a batch
  uint64_t checkpoint_bytes = 0;               // one checkpoint, without the shared part
  uint64_t shared_bytes = 0;                   // frozen weights that checkpoints share
  uint64_t state_bytes = 0;   // bytes in memory: weights, their average, and the optimiser's state
  uint64_t disk_bytes = 0;    // peak disk use of the run
  uint64_t free_bytes = 0;    // on the output's file system
  uint64_t memory_bytes = 0;  // bytes per process in training; set only by plan_training
};

// Sent after every step, at the cost of host counters only. `loss` and `metrics` are means since the previous
// reading; they are read every few steps (see `train.log_every`) and repeated in between.
struct StepProgress {
  int64_t step = 0, steps = 0, epoch = 0, step_in_epoch = 0, steps_per_epoch = 0;
  double loss = 0;
  std::vector<tasks::Metric> metrics;
  double learning_rate = 0;
  double images_per_second = 0, wait_share = 0;  // since this process began to train
  double seconds = 0, seconds_left = 0;          // seconds: over all processes of this run
};

struct EvaluationReport {
  int64_t step = 0;
  double epoch = 0;  // finished epochs, fractional
  int64_t samples = 0;
  std::vector<tasks::Metric> metrics;
  bool best = false;  // so far in the run
  double seconds = 0;
};

// Called from the training thread. By default prints nothing.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void started(const RunPlan&, int64_t /*first_step*/) {}
  virtual void progressed(const StepProgress&) {}
  virtual void logged(const StepProgress&) {}  // every log_every steps, after the line in metrics.jsonl
  virtual void evaluating(int64_t /*done*/, int64_t /*samples*/) {}
  virtual void evaluated(const EvaluationReport&) {}
  virtual void checkpointed(const std::string& /*directory*/, uint64_t /*bytes*/, double /*seconds*/) {}
  // A line for users: weights loaded, run resumed, image replaced, fallback used.
  virtual void note(const std::string& /*line*/) {}
};

enum class Resume {
  never,      // start; refuse a directory that already contains a run
  required,   // continue; fail if there is nothing to continue
  automatic,  // continue if there is something, else start
};

// With several processes, each calls run_training with the same recipe; only the leader writes files and
// notifies its observers.
struct TrainOptions {
  Resume resume = Resume::never;
  bool allow_other_threads = false;  // continue with another number of threads (no longer bit for bit)
  std::vector<Observer*> observers = {};
  parallel::World* world = nullptr;  // null: a single process
  std::string profile = {};          // file for a Chrome trace of the leader's steps 3 to 12
  uint64_t most_file_bytes =
      5'000'000'000;  // larger final and best weights are written as files with an index
};

struct RunSummary {
  RunPlan plan;
  std::string output, model_file, best_file;
  std::vector<HistoryPoint> history;  // the whole run, including its earlier processes
  tasks::Findings final;              // evaluation of the final weights, with report blocks
  std::vector<tasks::MetricInfo> step_metrics;
  tasks::MetricInfo main_metric;
  double best_metric = 0;
  int64_t best_step = 0;
  int64_t steps = 0;          // done; fewer than planned after an early end
  std::string stopped_early;  // the reason for an early end; "" if there was none
  double seconds = 0, images_per_second = 0, wait_share = 0;
  int64_t bad_images = 0;                    // replaced in training, or skipped in evaluation
  std::vector<parallel::Traffic> exchanges;  // traffic between this process and the others, by kind
};

struct PlannedRun {
  Recipe recipe;  // with settings from the data and the pretrained file, as in the run
  RunPlan plan;   // without data: no samples, and steps only if the recipe sets them
  std::string missing_data, missing_weights;            // reasons to refuse the run; "" = none
  std::shared_ptr<const ProcessShare> share = nullptr;  // of several processes
};

// Returns the plan of a run for --dry-run: builds the model, tries it on two images, opens the data, and
// writes nothing. Data or initial weights that cannot be opened are not an error here. Over several processes it also has the
// share of one of them.
PlannedRun plan_training(const Recipe& recipe, int64_t processes = 1);

// Trains from the start, or from the newest valid checkpoint, to the end. SIGINT and SIGTERM (after
// catch_interrupts(), and once the first checkpoint has begun): writes a checkpoint, then throws an Error of
// kind interrupted. If the loss is NaN, throws an Error and keeps the newest good checkpoint.
RunSummary run_training(const Recipe& recipe, const TrainOptions& options = {});

}  // namespace tessera::train
