// Everything that follows from a recipe before the first step, in the order in which it is made: where it
// computes, its data, its task with the model, what its steps are, how they change the weights.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "open/open_task.h"
#include "open/weights.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "recipe/recipe.h"
#include "tasks/base/registry.h"
#include "train/trainer.h"

namespace tessera::train {

struct Compute {
  torch::Device device = torch::kCPU;
  tasks::Precision precision = tasks::Precision::fp32;
};

struct RunData {
  SharedSource train, validation;
  std::string missing;  // why there are none, where that is allowed
};

// The task as it is trained.
struct RunTask {
  std::unique_ptr<tasks::Task> task;
  std::vector<tasks::Part> parts;
  NamedTensors state;            // parameters and buffers of all parts
  std::set<std::string> frozen;  // of its parameters, where checkpoints keep those in a file of their own
  WeightsInfo info;              // what every weight file of the run says
  std::vector<std::pair<std::string, std::string>> fingerprints;  // of the data and other files, by name
  std::vector<std::string> notes;  // for people: pretrained weights, frozen parameters
};

struct Optimisation {
  std::vector<torch::Tensor> trained;             // parameters that are not frozen
  std::vector<torch::Tensor> clipped, unclipped;  // of those: AGC leaves a head's gradients, as in timm
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<Ema> ema;  // null where there is none
  std::unique_ptr<Schedule> schedule;
  ClipConfig clip;
};

struct Setup {
  Recipe recipe;  // as given, with what the data and the task decide in the model's settings
  Compute compute;
  RunData data;
  RunPlan plan;
  RunTask model;
  Optimisation optimisation;

  uint64_t seed() const { return static_cast<uint64_t>(recipe.train.seed); }
};

// Sets the number of compute threads, opens the data, builds the task on its device. A run that is continued
// needs no pretrained weights: with `continued` their file may be gone. `processes`: that share the run.
Setup make_setup(const Recipe& recipe, bool continued = false, int64_t processes = 1);

// The learning rates of the run; fails where its warm-up is longer than that.
std::unique_ptr<Schedule> schedule_of(const Recipe& recipe, const RunPlan& plan);

// The parts of make_setup.
Compute choose_compute(const TrainConfig& train);
// Where `may_be_missing`, data that cannot be opened are no error.
RunData open_data(const Recipe& recipe, bool may_be_missing = false);
// Puts what the task and its data decide into the recipe's model, and describes the weights of the run.
WeightsInfo describe_run(Recipe& recipe, const RunData& data);
// What a run of this recipe is made of, with a task on the meta device: nothing is allocated.
RunPlan plan_run(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                 int64_t processes);
tasks::TaskSetup task_setup(const Recipe& recipe, const RunData& data, const WeightsInfo& info,
                            const Compute& compute);
// "" or why the first weights cannot be had.
std::string missing_weights(const Recipe& recipe);
RunTask build_task(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                   bool continued);
Optimisation make_optimisation(const Recipe& recipe, const RunTask& model, const RunPlan& plan);

// How a stream is loaded: in training shuffled, without end; in validation in order, once.
data::LoaderConfig loader_config(const TrainConfig& train, const tasks::StreamSpec& stream, bool training);
// Side of the training images in an epoch (train.sizes).
int64_t input_size(const Recipe& recipe, const RunPlan& plan, int64_t epoch);
// All sides of the run.
std::vector<int64_t> input_sizes(const Recipe& recipe);

// Whether checkpoints keep frozen weights in a file of their own, which they share: where they are a tenth of all or more.
inline bool keeps_frozen_apart(int64_t frozen, int64_t all) { return frozen > 0 && frozen >= all / 10; }
// Turns off the gradient of every parameter that one of the patterns ("blocks.0.*") matches; returns their
// number. A pattern that matches nothing is a usage error with the nearest name.
int64_t freeze_parameters(const NamedTensors& parameters, const std::vector<std::string>& patterns);

}  // namespace tessera::train
