// What is learned: how a batch becomes a loss, and a held-out set becomes metrics. A task knows no trainer.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "eval/classification.h"
#include "models/model.h"
#include "ops/inference.h"

namespace tessera::tasks {

// int8: linear layers in int8 with a scale for each row, the rest as in bf16; for inference on a CPU.
enum class Precision { fp32, bf16, fp64, int8 };
// Usage error naming the right names.
Precision parse_precision(const std::string& name);

// One batch on the device and in the type that the model computes in.
struct Batch {
  torch::Tensor images;   // [batch, 3, height, width]
  torch::Tensor labels;   // [batch] int64; -1 where multi-label
  torch::Tensor targets;  // [batch, classes]: multi-label sets and mixed pictures; undefined otherwise
  // Pictures that only a teacher judges, [any, 3, height, width], or undefined; the place of the first among
  // all pictures of the step, and the share of the labelled ones in all of the step.
  torch::Tensor unlabelled = {};
  int64_t first_unlabelled = 0;
  double labelled_share = 1;
  // Mean class weight of the labels of a step's whole batch, of which this may be a part: what a weighted
  // loss is divided by, a picture. 0: this is all of it.
  double mean_weight = 0;

  int64_t size() const { return images.size(0); }
  // Piece `index` of `count`, each a run of about equally many samples.
  Batch piece(int64_t index, int64_t count) const;
};
Batch to_device(const data::Batch& batch, torch::Device device, Precision precision);

// Autocast to bf16, and linear layers in int8 where that is asked for, within a scope; nothing for the other
// precisions.
class AutocastScope {
 public:
  AutocastScope(torch::Device device, Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool on_, was_enabled_ = false;
  std::optional<ops::InferenceScope> int8_;
};

// Both are scalars on the device: nothing is read back here.
struct StepOutput {
  torch::Tensor loss;  // mean over the batch, with its graph
  std::vector<std::pair<std::string, torch::Tensor>>
      metrics;  // detached means over the batch, in [0, 1] where shares
};

// What is kept of a held-out sample, whatever the number of classes.
struct EvaluatedSample {
  int64_t index = 0;  // into the source
  // Several classes a sample: its label is -1, `right` says that every class is, nll, brier and ranks are 0.
  eval::Verdict verdict;
};

struct Evaluation {
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> metrics;  // in the order to show; shares in [0, 1]
  int64_t classes = 0;
  std::vector<EvaluatedSample> rows;  // of all processes, in the order of the source
  double seconds = 0;
  // The metric of that name; an error if there is none.
  double metric(const std::string& name) const;
};

struct EvaluateOptions {
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  // Called after every batch with the samples done so far; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress;
  // The bytes of all processes, by rank, from those of this one. All of them evaluate a share each and call
  // it equally often. Empty: this process is alone.
  std::function<std::vector<std::string>(const std::string& bytes)> gather = {};
};

class Task {
 public:
  virtual ~Task() = default;
  // Names of StepOutput::metrics, in order.
  virtual std::vector<std::string> step_metrics() const = 0;
  // Sum of the weights of a batch's pictures.
  virtual double weight_of(const Batch& batch) const { return static_cast<double>(batch.size()); }
  virtual StepOutput step(models::Backbone& model, const Batch& batch, const models::Context& context) = 0;
  // Runs the loader (shuffle = false) to its end; pictures that it had to replace are left out. The same bits
  // whatever the number of processes. Leaves the model in evaluation mode.
  virtual Evaluation evaluate(models::Backbone& model, data::Loader& loader,
                              const EvaluateOptions& options) = 0;
  // The metric that says which checkpoint is best, larger being better.
  virtual std::string main_metric() const = 0;
};

}  // namespace tessera::tasks
