// The tasks: what a recipe's [task] name stands for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "models/base/codec.h"
#include "models/heads/class_head.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// A trained classifier that somebody else opened.
struct OpenedClassifier {
  std::shared_ptr<models::Classifier> model;  // in evaluation mode
  Value metadata;                             // of its task; empty in files of other programs
  data::Preprocess preprocess;
  std::string file, checksum;
};

// A trained backbone that somebody else opened.
struct OpenedBackbone {
  std::shared_ptr<models::Backbone> model;  // in evaluation mode
  models::ModelSpec spec;
  data::Preprocess preprocess;
  std::string file, checksum;
};

// A VAE that somebody else opened; without a codec where there is none.
struct OpenedVae {
  std::shared_ptr<models::Backbone> model;  // in evaluation mode, in float32
  models::LatentCodec* codec = nullptr;     // the model as one
  double scale = 0;                         // what latents are multiplied by; 0 = the file does not say
  std::string file, checksum;
};

class FeatureExtractor;
struct ExtractorPlace;
// Opens weights whose features measure images.
using OpenExtractor =
    std::function<std::unique_ptr<FeatureExtractor>(const std::string& path, const ExtractorPlace& place)>;

// All that a task is built from.
struct TaskSetup {
  Value settings;           // [task], complete but for its name
  models::ModelSpec model;  // as TaskKind::fit_model left it
  // The model of a spec: with first weights from the seed, or without any where they come from a file.
  models::Init init = models::Init::draw;
  bool meta = false;  // on the meta device: names, shapes and macs, nothing can be computed
  // Builds the model of a spec instead of the registry of families: for a backbone of one's own.
  std::function<std::shared_ptr<models::Backbone>(const models::ModelSpec& spec)> make_backbone = {};
  uint64_t seed = 0;

  // Null where the data are not there: a task that is only described, or measured on data of its own.
  std::shared_ptr<const data::Source> train, validation;
  data::Preprocess preprocess;
  data::AugmentConfig augment;
  Value metadata = {};    // of the weights that it is opened from
  std::string file = {};  // those weights, for errors

  std::vector<int64_t> sides = {};  // of the inputs over the run
  bool balanced = false;            // the run draws classes equally often
  bool continued = false;           // settings were accepted when the run began
  torch::Device device = torch::kCPU;
  Precision precision = Precision::fp32;
  // Opens the weights of a trained classifier for inputs of a side; empty where none may be opened.
  std::function<OpenedClassifier(const std::string& path, int64_t side)> open_classifier = {};
  // Opens the backbone of any weights; empty where none may be opened.
  std::function<OpenedBackbone(const std::string& path)> open_backbone = {};
  // Opens any weights as their task; empty where none may be opened.
  std::function<std::shared_ptr<Task>(const std::string& path)> open_task = {};
  // Open a VAE, and what measures images; empty where none may be opened.
  std::function<OpenedVae(const std::string& path)> open_vae = {};
  OpenExtractor open_extractor = {};
  int64_t batch_size = 0;  // samples of a step of all processes; 0 = nothing is trained

  std::shared_ptr<models::Backbone> build_backbone(const models::ModelSpec& spec) const;
  // What `make` gives, without memory for its weights where only their names and shapes are asked for.
  template <class Make>
  auto build(const Make& make) const {
    std::optional<nn::ShapesOnly> shapes;
    if (meta) shapes.emplace();
    return make();
  }
  bool draws() const { return !meta && init == models::Init::draw; }
};

// A row of the table in registry.cpp.
struct TaskKind {
  const char* name;
  const char* summary;            // one line for people
  const char* command = nullptr;  // of the program, that its weights are for where `predict` is not
  // All settings with their defaults, after laying `settings` over them, without "name"; usage errors.
  Value (*resolve)(const Value& settings);
  std::vector<KeyDescription> (*keys)();
  // Gives the model the settings that the task and its data decide, such as the number of classes. `train` is
  // null where there are no data.
  void (*fit_model)(Value& model_settings, const Value& settings, const data::Source* train);
  std::unique_ptr<Task> (*make)(const TaskSetup& setup);
  // Dotted keys of settings that are files: each machine may keep them elsewhere.
  std::vector<const char*> path_keys = {};
  // The evaluation gives these where EvaluateOptions::blocks name them, besides pictures: "classes", "samples", "bits".
  std::vector<const char*> tables = {};
  // Images with classes and without captions are measured by the names of their classes.
  bool names_classes = false;
};

const std::vector<TaskKind>& task_kinds();
// Adds a task to those of the table, for a program that brings one of its own: before anything is read. One
// of the same name takes the place of the other.
void add_task_kind(const TaskKind& kind);
// A usage error with the nearest name if there is none.
const TaskKind& find_task(const std::string& name);

// [task] with its name and every key of that task.
Value resolve_task(const Value& section);
// The name, and the rest, of such a table; an empty one stands for the first task.
std::string task_name(const Value& section);
Value task_settings(Value section);

}  // namespace tessera::tasks
