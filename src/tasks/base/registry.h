// The registry of tasks, by the name in a recipe's [task].
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "models/heads/class_head.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// Weights that a task opens in addition to its own.
struct OpenedWeights {
  std::shared_ptr<Task> task;  // in evaluation mode
  std::string name;            // the name of the task
  data::Preprocess preprocess;
  Value metadata;  // metadata of its task; empty for files of other programs
  std::string file, checksum;
};

// Opens other weights for a task. Hall `open` implements it: a path may be a run with a newest checkpoint, and weights may
// belong to any task.
class WeightsOpener {
 public:
  virtual ~WeightsOpener() = default;
  // Returns the weights file of a file, run or checkpoint.
  virtual std::string file_of(const std::string& path) const = 0;
  // `side` is the side of the inputs; 0 = as in training.
  virtual OpenedWeights open(const std::string& path, int64_t side) const = 0;
};

// Everything needed to build a task.
struct TaskSetup {
  Value settings;           // [task], complete except for its name
  models::ModelSpec model;  // as TaskKind::fit_model left it
  // Initial weights of the model: drawn from the seed, or none if a file provides them.
  models::Init init = models::Init::draw;
  bool meta = false;  // on the meta device: only names, shapes and multiply-adds; nothing can be computed
  // Builds the model of a spec instead of the family registry, for custom backbones.
  std::function<std::shared_ptr<models::Backbone>(const models::ModelSpec& spec)> make_backbone = {};
  uint64_t seed = 0;

  // Null without data: the task is only described, or evaluated on its own data.
  std::shared_ptr<const data::Source> train, validation;
  data::Preprocess preprocess;
  data::AugmentConfig augment;
  Value metadata = {};    // metadata of the opened weights
  std::string file = {};  // path of the opened weights, for errors

  std::vector<int64_t> sides = {};  // input sides during the run
  bool balanced = false;            // the run samples classes equally often
  bool continued = false;           // the settings were already checked when the run began
  torch::Device device = torch::kCPU;
  Precision precision = Precision::fp32;
  std::shared_ptr<const WeightsOpener> opener = {};  // null: the task may not open other weights
  int64_t batch_size = 0;                            // samples of a step over all processes; 0 = no training

  std::shared_ptr<models::Backbone> build_backbone(const models::ModelSpec& spec) const;
  // Returns the result of `make`; on the meta device no memory is allocated for its weights.
  template <class Make>
  auto build(const Make& make) const {
    std::optional<nn::ShapesOnly> shapes;
    if (meta) shapes.emplace();
    return make();
  }
  bool draws() const { return !meta && init == models::Init::draw; }
};

// A row of the table of tasks in registry.cpp.
struct TaskKind {
  const char* name = nullptr;
  const char* summary = nullptr;  // one line for users
  const char* command = nullptr;  // command for predictions with its weights, if not `predict`
  // Returns all settings with defaults, overlaid with `settings`, without "name"; throws usage errors.
  Value (*resolve)(const Value& settings) = nullptr;
  std::vector<KeyDescription> (*keys)() = nullptr;
  // Sets the model settings that the task and its data determine, such as the number of classes. `train` is
  // null without data.
  void (*fit_model)(Value& model_settings, const Value& settings, const data::Source* train) = nullptr;
  std::function<std::unique_ptr<Task>(const TaskSetup& setup)> make = {};
  // Dotted keys of file paths, which may differ between machines.
  std::vector<const char*> path_keys = {};
  // Blocks that EvaluateOptions::blocks may request in addition to pictures: "classes", "samples", "bits".
  std::vector<const char*> tables = {};
  // Images with classes but no captions are evaluated zero-shot by class names.
  bool names_classes = false;
  // False if training reads no classes: then wrong classes in the data do not stop it.
  bool reads_classes = true;
  // True if it learns the class of each pixel: it reads the masks of a Pascal VOC set.
  bool reads_masks = false;
  data::CaptionUse captions = data::CaptionUse::as_found;
};

const std::vector<TaskKind>& task_kinds();
// Adds a custom task to the table, before any recipe or file is read. Replaces a task of the same name.
void add_task_kind(const TaskKind& kind);
// Throws a usage error that suggests the nearest name if there is none.
const TaskKind& find_task(const std::string& name);
// Returns settings of data that open the annotations of a set that a task reads.
data::SourceConfig data_for(const TaskKind& kind, data::SourceConfig config);
// The task of a recipe or file that has no task name: classify.
const TaskKind& default_task();

// Returns [task] with its name and every key of that task.
Value resolve_task(const Value& section);
// Splits such a table into the name and the other keys; without a name it is default_task().
std::string task_name(const Value& section);
Value task_settings(Value section);

}  // namespace tessera::tasks
