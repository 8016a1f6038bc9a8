// Everything that follows from a recipe before the first step: data, model, task, optimiser.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/source.h"
#include "models/model.h"
#include "tasks/task.h"
#include "train/clip.h"
#include "train/ema.h"
#include "train/optimiser.h"
#include "train/recipe.h"
#include "train/schedule.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace tessera::train {

struct Setup {
  Recipe
      recipe;  // as given, with the classes of the data and the size of the pictures in the model's settings
  torch::Device device = torch::kCPU;
  tasks::Precision precision = tasks::Precision::fp32;
  std::unique_ptr<data::Source> train_source, validation_source;
  std::unique_ptr<data::Source> unlabelled_source;  // null where the recipe has none
  WeightsInfo info;                                 // what every weight file of the run says
  std::shared_ptr<models::Backbone> model;
  NamedTensors model_state;                       // its parameters and buffers
  std::vector<torch::Tensor> trained;             // its parameters that are not frozen
  std::vector<torch::Tensor> clipped, unclipped;  // of those: AGC leaves the head's gradients, as in timm
  std::unique_ptr<tasks::Task> task;
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<Ema> ema;  // null where there is none
  std::unique_ptr<Schedule> schedule;
  ClipConfig clip;
  std::vector<double> soft_mask;  // share of the bi-directional mask at each step; empty where it is off
  RunPlan plan;
  std::vector<std::pair<std::string, std::string>> fingerprints;  // of the data and the teacher, by name
  std::vector<std::string> notes;  // what people should know: pretrained weights, frozen parameters

  uint64_t seed() const { return static_cast<uint64_t>(recipe.train.seed); }
  // Mixup and CutMix, where the recipe asks for them: samples 2i and 2i+1 of the batch of all processes, by
  // draws for that batch.
  void mix(data::Batch& batch, int64_t step) const;
  // Side of the training pictures in an epoch (train.sizes).
  int64_t input_size(int64_t epoch) const;
  data::LoaderConfig train_loader_config() const;
  data::LoaderConfig unlabelled_loader_config() const;
  data::LoaderConfig validation_loader_config() const;
};

// Sets the number of compute threads, opens the data, builds the model on its device. A run that is continued
// needs no pretrained weights: with `continued` their file may be gone. `processes`: that share the run.
Setup make_setup(const Recipe& recipe, bool continued = false, int64_t processes = 1);

// Turns off the gradient of every parameter that one of the patterns ("blocks.0.*") matches; returns their
// number. A pattern that matches nothing is a usage error with the nearest name.
int64_t freeze_parameters(torch::nn::Module& model, const std::vector<std::string>& patterns);

}  // namespace tessera::train
