// What is learned: the parts that are trained, how a batch becomes a loss, and a validation set findings. A
// task knows no trainer and no files; registry.h lists the tasks.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/value.h"
#include "data/loading/loader.h"
#include "models/base/model.h"
#include "nn/named_tensors.h"
#include "tasks/base/findings.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// A module that a task trains. Its tensors' names in files are `prefix` before their own.
struct Part {
  std::string prefix;  // "" or "decoder."
  std::shared_ptr<torch::nn::Module> module;
};

// A part that is a backbone: first weights can be loaded into it from files of other tasks.
struct BackbonePart {
  std::string prefix;
  std::shared_ptr<models::Backbone> model;
  models::ModelSpec spec;
};

// Samples that a task reads: batches of one size from one source, transformed for an input side.
struct StreamSpec {
  std::string name;  // "train", "validation", "unlabelled"
  std::shared_ptr<const data::Source> source;
  std::function<std::shared_ptr<const data::Transform>(int64_t side)> transform;
  int64_t batch_size = 0;  // of all processes; 0 = the run's
  bool labelled = true;    // the run's class balance and repeats hold for it
  bool pairs = false;      // processes keep samples 2i and 2i+1 together
};

// Keys the draws for one step.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
};

// The processes of a run, as far as a loss over the whole batch needs them. All call it equally often.
class Collective {
 public:
  virtual ~Collective() = default;
  // Rows [size, …] of this process, those of its samples, in their place among the `whole` of all of them:
  // [whole, …]. Gradients flow back to the process that gave the row.
  virtual torch::Tensor gather(const torch::Tensor& rows, int64_t first, int64_t whole) = 0;
  // The sum over all processes of values of one shape; its gradient is the sum of theirs.
  virtual torch::Tensor sum(const torch::Tensor& values) = 0;
  // The processes in the order of their samples are a ring: process `rank` of `size` hands things to the one behind it, the
  // last to the first.
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // Begins to hand on `rows` [n, …]; the function that it returns waits for the `count` rows [count, …] that come from the
  // process before. Without a graph; the rows stay as they are until then.
  virtual std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t count) = 0;
  // Of one process alone.
  static Collective& alone();
};

// A scalar of a step besides the loss: a mean over what it counts.
struct Term {
  torch::Tensor sum;  // on the device, without its graph
  double weight = 1;
};

// Both are scalars on the device: nothing is read back here.
struct Loss {
  torch::Tensor sum;        // over what Task::weight counts, with its graph
  std::vector<Term> terms;  // in the order of Task::step_metrics
};

struct EvaluateOptions {
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  // A loader over this process' share of a validation stream, in order, to its end.
  std::function<std::unique_ptr<data::Loader>(const StreamSpec&)> open = {};
  // Called after every batch with the samples done so far; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
  // The bytes of all processes, by rank, from those of this one. All of them evaluate a share each and call
  // it equally often. Empty: this process is alone.
  std::function<std::vector<std::string>(const std::string& bytes)> gather = {};
  // Blocks that cost something are made only where they are asked for, by name: "classes", "samples",
  // "pictures", "completions" (images drawn patch by patch). Empty: none of them.
  std::vector<std::string> blocks = {};
  uint64_t seed = 0;  // chooses which pictures are shown

  bool wants(const std::string& block) const;
};

// One way to measure the model. The same bits whatever the number of processes; leaves the parts in
// evaluation mode.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual std::string name() const = 0;
  virtual Findings run(const EvaluateOptions& options) = 0;
};

// The evaluators of a task are most often one of its own functions.
std::vector<std::unique_ptr<Evaluator>> one_evaluator(
    std::function<Findings(const EvaluateOptions& options)> run);

// What is said of one image, a line each: named values for programs, words for people.
struct PredictionLine {
  std::vector<std::pair<std::string, Value>> values;
  std::string words;
};
using Prediction = std::vector<PredictionLine>;

class Task {
 public:
  virtual ~Task() = default;

  // --- what is learned
  virtual std::vector<Part> parts() const = 0;
  virtual std::vector<BackbonePart> backbones() const = 0;
  // Whether what the task adds to its backbones means the same in a file with these metadata (its class
  // names, say); otherwise it keeps its first values.
  virtual bool takes_outputs_of(const Value& /*metadata*/) const { return true; }
  // Whether weights that hold a part of what the task adds in another shape are refused; else that part keeps its first
  // values, and is named.
  virtual bool refuses_other_shapes() const { return false; }
  // Tensors, by their names in files, that make outputs of features: a head. They keep their first values
  // where a file has none that fit, and adaptive clipping leaves their gradients alone.
  virtual std::vector<std::string> output_names() const { return {}; }
  // Those outputs in words, "head for 2 classes (cat, dog)".
  virtual std::string outputs() const { return "outputs"; }
  // Multiply-adds of one training sample of this side, forward.
  virtual int64_t macs(int64_t side) const = 0;

  // --- what it reads
  // Streams of training, all of one step together; an epoch is one of the first.
  virtual std::vector<StreamSpec> streams() const = 0;
  virtual StreamSpec validation() const = 0;
  // On the host, for the batches of the streams in their order: mixing, masks, time steps, negatives. Draws
  // depend on the key and on the samples' places among those of all processes.
  virtual void prepare(std::span<data::Batch> /*batches*/, const StepKey& /*key*/) const {}

  // --- a step
  // Terms of a step's loss.
  virtual std::vector<MetricInfo> step_metrics() const { return {}; }
  // What the sum of the loss is divided by, over all pieces and processes: samples, unless a task counts
  // pixels, boxes or tokens.
  virtual double weight(const Inputs& inputs) const { return static_cast<double>(inputs.size()); }
  virtual bool weight_counts_samples() const { return true; }
  virtual Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) = 0;
  // The loss compares all samples of a step: it cannot be computed in pieces.
  virtual bool whole_batch() const { return false; }
  virtual void before_step(const models::TrainingStep&) {}
  virtual void after_step(const models::TrainingStep&) {}
  // What a run needs to go on besides tensors of the parts.
  virtual Value state() const { return {}; }
  virtual void load_state(const Value&) {}

  // --- what it is measured by
  virtual std::vector<std::unique_ptr<Evaluator>> evaluators() = 0;
  // One of the first evaluator's: it says which weights are best.
  virtual MetricInfo main_metric() const = 0;

  // --- what it is used for
  // For files and checkpoints: class names, vocabulary, latent scale. Keys of the table become entries
  // "tessera.KEY".
  virtual Value metadata() const { return {}; }
  // Why a run that kept `stored` metadata cannot go on with this task's; "" if it can.
  virtual std::string metadata_conflict(const Value& /*stored*/) const { return ""; }
  // The result tells a user of surprises who begins with the weights of a file that has `stored` metadata; "" if there
  // are none.
  virtual std::string metadata_warning(const Value& /*stored*/) const { return ""; }
  // Of images [batch, 3, height, width] that were prepared as the weights ask; at most `most` lines each. A
  // usage error where the task has nothing to say of single images.
  virtual std::vector<Prediction> predict(const torch::Tensor& images, int64_t most);
  // What tells classes apart, for a task that does; else null.
  virtual std::shared_ptr<models::Classifier> classifier() const { return nullptr; }
  // Files besides the data that a run depends on, by name with their checksums.
  virtual std::vector<std::pair<std::string, std::string>> fingerprints() const { return {}; }
};

// Parameters, then buffers, of all parts, under their names in files.
NamedTensors named_state(const std::vector<Part>& parts);
NamedTensors named_parameters(const std::vector<Part>& parts);
void set_training(const std::vector<Part>& parts, bool on);
void move(const std::vector<Part>& parts, torch::Device device, torch::ScalarType type);
int64_t count_parameters(const std::vector<Part>& parts);

}  // namespace tessera::tasks
