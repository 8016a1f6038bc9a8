// A task: the trained parts, the loss of a batch, and the metrics of a validation set. It depends on no
// trainer and no files; registry.h lists the tasks.
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
#include "onnx/trace.h"
#include "tasks/base/findings.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// A trained module. In files, `prefix` precedes the names of its tensors.
struct Part {
  std::string prefix;  // "" or "decoder."
  std::shared_ptr<torch::nn::Module> module;
};

// A part that is a backbone; it can be initialised from files of other tasks.
struct BackbonePart {
  std::string prefix;
  std::shared_ptr<models::Backbone> model;
  models::ModelSpec spec;
};

// A stream of samples: batches of a fixed size from one source, transformed for an input side.
struct StreamSpec {
  std::string name;  // "train", "validation", "unlabelled"
  std::shared_ptr<const data::Source> source;
  std::function<std::shared_ptr<const data::Transform>(int64_t side)> transform;
  int64_t batch_size = 0;  // over all processes; 0 = the run's batch size
  bool labelled = true;    // class balance and repeated augmentation of the run apply
  bool pairs = false;      // samples 2i and 2i+1 stay on one process
};

// Key of the random draws of one step.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
};

// Communication of a loss over the whole batch. All processes call it equally often.
class Collective {
 public:
  virtual ~Collective() = default;
  // Places this process' rows [size, …] at index `first` of the rows of all processes: [whole, …]. Gradients
  // flow back to the process that owns the row.
  virtual torch::Tensor gather(const torch::Tensor& rows, int64_t first, int64_t whole) = 0;
  // Sums tensors of equal shape over all processes; their gradients are summed too.
  virtual torch::Tensor sum(const torch::Tensor& values) = 0;
  // The processes form a ring in the order of their samples: `rank` sends to the next, the last to the first.
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // Starts sending `rows` [n, …]. The returned function waits for the `count` rows [count, …] from the
  // previous process. Records no graph; `rows` must not change until then.
  virtual std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t count) = 0;
  // The collective of a run with a single process.
  static Collective& alone();
};

// A scalar of a step in addition to the loss, as a weighted mean.
struct Term {
  torch::Tensor sum;  // on the device, without its graph
  double weight = 1;
};

// Both are scalars on the device, so nothing is copied to the host here.
struct Loss {
  torch::Tensor sum;        // sum over the units of Task::weight, with its graph
  std::vector<Term> terms;  // in the order of Task::step_metrics
};

struct EvaluateOptions {
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  // Opens a loader that reads this process' share of a validation stream once, in order.
  std::function<std::unique_ptr<data::Loader>(const StreamSpec&)> open = {};
  // Called after every batch with the samples done so far; returning false throws ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
  // Gathers bytes from all processes, by rank. Each process evaluates a share and makes the same number of
  // calls. Empty: a single process.
  std::function<std::vector<std::string>(const std::string& bytes)> gather = {};
  // Names of expensive blocks to make: "classes", "samples", "pictures", "completions" (images drawn patch by
  // patch). Empty: none.
  std::vector<std::string> blocks = {};
  uint64_t seed = 0;  // selects the shown pictures

  bool wants(const std::string& block) const;
};

// Evaluates the model in one way. Results are bitwise equal for any number of processes. Leaves the parts in
// evaluation mode.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual std::string name() const = 0;
  virtual Findings run(const EvaluateOptions& options) = 0;
};

// One line of the prediction for an image: named values for programs, words for readers.
struct PredictionLine {
  std::vector<std::pair<std::string, Value>> values;
  std::string words;
};
using Prediction = std::vector<PredictionLine>;

// A computation of the task that other programs can run; `name` is "" if it is the only one.
struct ExportedPart {
  std::string name;
  onnx::Function function;
};

class Task {
 public:
  virtual ~Task() = default;

  // --- learning
  virtual std::vector<Part> parts() const = 0;
  virtual std::vector<BackbonePart> backbones() const = 0;
  // True if the task's own tensors have the same meaning in a file with these metadata (class names, for
  // example); otherwise they keep their initial values.
  virtual bool takes_outputs_of(const Value& /*metadata*/) const { return true; }
  // True if weights are refused when one of the task's own tensors has another shape; otherwise it keeps its
  // initial value and is reported.
  virtual bool refuses_other_shapes() const { return false; }
  // Names in files of the output tensors (a head). They keep their initial values if the file has none that
  // fit. Adaptive clipping ignores their gradients.
  virtual std::vector<std::string> output_names() const { return {}; }
  // Describes those outputs: "head for 2 classes (cat, dog)".
  virtual std::string outputs() const { return "outputs"; }
  // Multiply-adds of the forward pass for one training sample at this image side.
  virtual int64_t macs(int64_t side) const = 0;

  // --- input
  // Training streams, which are all read in each step; an epoch is one pass over the first.
  virtual std::vector<StreamSpec> streams() const = 0;
  virtual StreamSpec validation() const = 0;
  // Runs on the host, on the batches of the streams in order: mixing, masks, time steps, negatives. Draws
  // depend only on the key and the samples' global indices.
  virtual void prepare(std::span<data::Batch> /*batches*/, const StepKey& /*key*/) const {}

  // --- a step
  // Additional terms of a step's loss.
  virtual std::vector<MetricInfo> step_metrics() const { return {}; }
  // Divisor of the loss sum over all pieces and processes: samples, unless a task counts pixels, boxes or
  // tokens.
  virtual double weight(const Inputs& inputs) const { return static_cast<double>(inputs.size()); }
  virtual bool weight_counts_samples() const { return true; }
  virtual Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) = 0;
  // True if the loss compares all samples of a step with each other, so it cannot be computed in pieces.
  virtual bool whole_batch() const { return false; }
  // True if loss() makes the same calls in every step with inputs of equal shapes, so that a recorded step can be repeated with other
  // inputs. Neither the host's values nor the number of the step decide anything there, and the terms' weights follow from shapes.
  // Draws need no answer: a recording refuses them.
  virtual bool repeats_its_calls() const { return false; }
  virtual void before_step(const models::TrainingStep&) {}
  virtual void after_step(const models::TrainingStep&) {}
  // True if after_step() must not run after a skipped step, so that each step ends with a wait for the device.
  virtual bool reads_steps() const { return false; }
  // Returns the reason that weights cannot be divided over processes (ZeRO's stage 3); "" if they can.
  virtual std::string why_weights_stay_whole() const { return ""; }
  // State needed to continue a run, in addition to the tensors of the parts.
  virtual Value state() const { return {}; }
  virtual void load_state(const Value&) {}

  // --- evaluation
  virtual std::vector<std::unique_ptr<Evaluator>> evaluators() = 0;
  // A metric of the first evaluator that selects the best weights.
  virtual MetricInfo main_metric() const = 0;

  // --- use
  // Stored in files and checkpoints: class names, vocabulary, latent scale. Keys of the table become entries
  // "tessera.KEY".
  virtual Value metadata() const { return {}; }
  // Returns why a run with `stored` metadata cannot continue with this task; "" if it can.
  virtual std::string metadata_conflict(const Value& /*stored*/) const { return ""; }
  // Returns a warning for training that starts from a file with `stored` metadata; "" if there is none.
  virtual std::string metadata_warning(const Value& /*stored*/) const { return ""; }
  // Predicts preprocessed images [batch, 3, height, width]; at most `most` lines each. Throws a usage error
  // if the task has no predictions for single images.
  virtual std::vector<Prediction> predict(const torch::Tensor& images, int64_t most);
  // Returns the computations that `tessera export` writes, for images of this side: usually the classifier.
  // Throws a usage error if there are none.
  virtual std::vector<ExportedPart> exported(int64_t side);
  // The classifier of the task, or null.
  virtual std::shared_ptr<models::Classifier> classifier() const { return nullptr; }
  // Names and checksums of the files, apart from the data, that a run depends on.
  virtual std::vector<std::pair<std::string, std::string>> fingerprints() const { return {}; }
};

// Makes one function the only evaluator of a task, which is the usual case. It runs without gradients, with
// the parts in evaluation mode.
std::vector<std::unique_ptr<Evaluator>> one_evaluator(
    Task& task, std::function<Findings(const EvaluateOptions& options)> run);

// Parameters, then buffers, of all parts, by their names in files.
NamedTensors named_state(const std::vector<Part>& parts);
NamedTensors named_parameters(const std::vector<Part>& parts);
void set_training(const std::vector<Part>& parts, bool on);
void move(const std::vector<Part>& parts, torch::Device device, torch::ScalarType type);
int64_t count_parameters(const std::vector<Part>& parts);

}  // namespace tessera::tasks
