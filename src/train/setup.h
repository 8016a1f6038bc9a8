// Everything derived from a recipe before the first step, in order of creation: compute device, data, task
// with its model, plan of steps, optimisation.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "nn/own_rows.h"
#include "open/open_task.h"
#include "open/weights.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "parallel/pipeline.h"
#include "parallel/shards.h"
#include "recipe/recipe.h"
#include "tasks/base/registry.h"
#include "train/trainer.h"

namespace tessera::tasks {
class LanguageBeginner;
}

namespace tessera::train {

struct Compute {
  torch::Device device = torch::kCPU;
  tasks::Precision precision = tasks::Precision::fp32;
};

struct RunData {
  SharedSource train, validation;
  std::string missing;  // the reason that data are missing, if that is allowed
};

// The task in training.
struct RunTask {
  std::unique_ptr<tasks::Task> task;
  std::vector<tasks::Part> parts;
  torch::Device device = torch::kCPU;  // where it computes; divided weights go there as rows
  bool continued = false;              // a checkpoint with the optimiser's state follows
  NamedTensors state;                  // parameters and buffers of all parts
  std::set<std::string> frozen;        // frozen parameters, if checkpoints keep them in a separate file
  WeightsInfo info;                    // metadata for every weight file of the run
  std::vector<std::pair<std::string, std::string>> fingerprints;  // by name, of data and other files
  std::vector<std::string> notes;  // notes for users: pretrained weights, frozen parameters
};

struct Optimisation {
  std::unique_ptr<parallel::Shards> shards;  // null unless ZeRO divides what follows
  std::vector<torch::Tensor> trained;        // parameters that train; with ZeRO, this process's rows of them
  std::vector<torch::Tensor> clipped, unclipped;  // AGC ignores a head's gradients, as in timm
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<Ema> ema;  // null without a moving average
  NamedTensors averaged;     // what it averages: the model's state, or rows of it
  std::unique_ptr<Schedule> schedule;
  ClipConfig clip;
};

struct Setup {
  Recipe recipe;  // as given, plus the model settings determined by data and task
  Compute compute;
  RunData data;
  RunPlan plan;
  RunTask model;
  Optimisation optimisation;

  uint64_t seed() const { return static_cast<uint64_t>(recipe.train.seed); }
};

// Sets the number of compute threads, opens the data, and builds the task on its device. A continued run
// needs no pretrained weights: with `continued` their file may be missing. `processes`: number of processes
// of the run; `world`: if given, they divide the optimisation as the recipe's parallel.zero names.
Setup make_setup(const Recipe& recipe, bool continued = false, int64_t processes = 1,
                 parallel::World* world = nullptr);

// --- the first weights (first_weights.cpp)

// Returns the rows that this process draws and loads; none if it must build the whole model.
std::optional<nn::OwnRows> own_rows(const Recipe& recipe, const parallel::World* world);
// Builds the model; with `rows`, in this process's share of memory. Resets `rows` if the task keeps weights that are not
// its state, and builds whole weights.
void build_model(Setup& setup, const WeightsInfo& info, bool continued, std::optional<nn::OwnRows>& rows);
// Divides the optimisation over processes, and the weights if the recipe divides them. Throws Error if processes with
// `rows` read other weights. Collective.
void divide(Setup& setup, const std::optional<nn::OwnRows>& rows, parallel::World* world);
// Takes the weights of the language model at `path`, and returns a note.
std::string begin_language(tasks::LanguageBeginner& task, const std::string& path);
// Initial weights are drawn from the same seed, but weights files and thread counts may differ between processes. If they
// differ, gives all processes those of the first one and returns true. Collective.
bool share_first_weights(const NamedTensors& state, parallel::World& world);
inline constexpr const char* kSharedNote =
    "the first weights differ between processes: all take those of the first one";

// Returns the run that its learning-rate schedule covers.
ScheduleSpan schedule_span(const Recipe& recipe, const RunPlan& plan);

// The parts of make_setup.
Compute choose_compute(const TrainConfig& train);
// If `may_be_missing`, data that cannot be opened are not an error.
RunData open_data(const Recipe& recipe, bool may_be_missing = false);
// Sets the model settings that the task and its data determine, and describes the weights of the run.
WeightsInfo describe_run(Recipe& recipe, const RunData& data);
// Returns the plan of a run, using a task on the meta device: allocates nothing.
RunPlan plan_run(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                 int64_t processes);
// Builds the run's task on the meta device.
std::unique_ptr<tasks::Task> meta_task_of(const Recipe& recipe, const RunData& data, const WeightsInfo& info,
                                          const Compute& compute);
tasks::TaskSetup task_setup(const Recipe& recipe, const RunData& data, const WeightsInfo& info,
                            const Compute& compute);
// Returns why the initial weights are missing; "" if they are available.
std::string missing_weights(const Recipe& recipe);
RunTask build_task(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                   bool continued);
// True if an update or clipping reads all rows of a tensor, so that one process must hold them.
bool holds_whole_tensors(const Recipe& recipe);
Optimisation make_optimisation(const Recipe& recipe, const RunTask& model, const RunPlan& plan,
                               const parallel::World* world = nullptr);

// The place of a process among those that share a batch.
struct BatchShare {
  int64_t rank = 0, processes = 1;
};
// Returns the loader settings of a stream: shuffled and endless in training, one ordered pass in validation, where a batch
// has a sample for each process.
data::LoaderConfig loader_config(const TrainConfig& train, const tasks::StreamSpec& stream, bool training,
                                 const BatchShare& share = {});
// Throws a usage error if this number of processes cannot divide the layers of a task's parts (parallel.tensor).
void check_layers_divide(const Recipe& recipe, const std::vector<tasks::Part>& parts, int64_t processes);
// The same for its blocks (parallel.pipeline).
void check_blocks_divide(const Recipe& recipe, const tasks::Task& task, int64_t processes);
// Returns the side of the training images in an epoch (train.sizes).
int64_t input_size(const Recipe& recipe, const RunPlan& plan, int64_t epoch);
// Returns all sides of the run.
std::vector<int64_t> input_sizes(const Recipe& recipe);

// True if checkpoints share a separate file of frozen weights, because at least a tenth of all is frozen.
inline bool keeps_frozen_apart(int64_t frozen, int64_t all) { return frozen > 0 && frozen >= all / 10; }
// Turns off gradients of parameters matching one of the patterns ("blocks.0.*"); returns their number. Throws
// a usage error with the nearest name for a pattern without a match.
int64_t freeze_parameters(const NamedTensors& parameters, const std::vector<std::string>& patterns);
// Returns the parameters of each block of all parts, in the order in which they run.
std::vector<std::vector<torch::Tensor>> units_of(const std::vector<tasks::Part>& parts);
// Returns the process of each tensor of these blocks in a pipeline.
parallel::Layout::Holders stage_of_each(const NamedTensors& state,
                                        const std::vector<std::vector<torch::Tensor>>& units, int64_t stages);
// Returns the weights that linear layers alone read.
std::vector<torch::Tensor> weights_of_products(const std::vector<tasks::Part>& parts);
// Freezes them, and rounds frozen weights of linear layers to train.frozen. Returns a note, or "". Throws a usage error if
// nothing is frozen to be rounded, or if the run computes in another precision.
std::string freeze(const Recipe& recipe, const std::vector<tasks::Part>& parts);

}  // namespace tessera::train
