// One run of the training loop; other code uses trainer.h. trainer.cpp has the steps; trainer_results.cpp has
// evaluation, output and reports.
#pragma once

#include <c10/core/Event.h>
#include <torch/csrc/autograd/profiler_legacy.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/progress.h"
#include "data/loading/loader.h"
#include "data/transforms/transform.h"
#include "io/files/tensorboard.h"
#include "io/images/image.h"
#include "optim/loss_scale.h"
#include "optim/noise_scale.h"
#include "parallel/collectives.h"
#include "parallel/data_parallel.h"
#include "parallel/pipeline.h"
#include "parallel/world.h"
#include "runs/checkpoint.h"
#include "runs/meter.h"
#include "tasks/base/task.h"
#include "train/run_state.h"
#include "train/setup.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

namespace tessera::train {

// Time spent in training steps, without evaluations and checkpoints.
struct StepTime {
  double seconds = 0, waited = 0;
  int64_t images = 0;
  double images_per_second() const { return seconds > 0 ? static_cast<double>(images) / seconds : 0; }
  double wait_share() const { return seconds > 0 ? waited / seconds : 0; }
  void add(const StepTime& other) {
    seconds += other.seconds, waited += other.waited, images += other.images;
  }
};

// Numbers that a device computes in each step and the host reads two steps later, so that it never waits.
class LaterNumbers {
 public:
  // Starts the copy of a [] float32 number.
  void push(const torch::Tensor& number);
  // Returns the oldest number if two newer ones follow, or, waiting for it, if `all`.
  std::optional<double> pop(bool all);

 private:
  struct Waiting {
    torch::Tensor host;
    std::shared_ptr<c10::Event> copied;  // null on the CPU
  };
  std::deque<Waiting> waiting_;
};

class Trainer {
 public:
  Trainer(Setup setup, const TrainOptions& options, parallel::World& world);
  RunSummary run();

 private:
  // Before the first step.
  void start();
  void check_profile() const;
  void check_shared_directory();
  void check_same_everywhere();
  void share_first_weights();
  void claim_directory();
  std::optional<StoredCheckpoint> stored_checkpoint();
  std::optional<StoredCheckpoint> agreed_checkpoint();
  void open_files();
  void restore_best();
  void open_loaders();
  void restore(const StoredCheckpoint& stored);
  void restore_weights(const WeightFile& file);
  void check_disk() const;

  // The loop.
  void train_step();
  void average(const std::vector<torch::Tensor>& statistics, double share);
  const std::vector<torch::Tensor>& statistics();
  tasks::Inputs next_inputs();
  StepMeans compute_gradients(const tasks::Inputs& inputs);
  std::string why_no_graphs() const;
  std::optional<StepMeans> graphed_gradients(const tasks::Inputs& inputs);
  models::Context context_of(const tasks::Inputs& piece) const;
  tasks::Loss piece_loss(const tasks::Inputs& piece);
  void piece_backward(const torch::Tensor& loss, bool last);
  void share_means(StepMeans& means) const;
  void measure_piece(double factor, int64_t samples);
  void measure_noise(int64_t samples);
  double norm_of_gradients() const;
  void count_skipped(bool finite, int64_t step, bool loss_is_finite);
  bool ends_steps_there() const;
  void finish_there(const models::TrainingStep& step, const StepMeans& means,
                    const std::vector<torch::Tensor>& running, const std::vector<torch::Tensor>& before);
  void settle(bool all);
  bool all_finite(const StepMeans& means, const Clipped& clipped);
  void after_step();
  void log();
  void add_traffic(Metrics& values);
  void end_epoch();
  void evaluate();
  void checkpoint();
  void write_checkpoint();
  CheckpointFile joined_file(const char* name, const NamedTensors& parts, Metadata metadata) const;
  NamedTensors load_parts(const StoredCheckpoint& stored, const char* file) const;
  std::vector<CheckpointFile> checkpoint_files() const;
  void prove_checkpoint();
  bool astray() const;
  void check_not_astray(bool stop) const;
  std::string newest_good() const;
  bool evaluation_due() const;
  bool checkpoint_due() const;
  bool stopping();
  bool stopped_early() const;
  bool ended() const { return state_.step == setup_.plan.steps || stopped_early(); }
  std::string why_stopped() const;
  void profile();
  void end_profile();
  void check_weights() const;
  [[noreturn]] void stop_for_good(const std::string& what) const;

  // Output and reports.
  void write(const std::string& kind, Metrics values);
  void tell_progress(bool logged);
  void note(const std::string& line) const;
  RunSummary summarise();

  tasks::Findings run_evaluation(bool last);
  std::unique_ptr<data::Loader> open_loader(const tasks::StreamSpec& stream, bool training,
                                            data::LoaderPosition start = {});
  void collect_bad_pictures();
  // Calls the function with the weights to evaluate in the model.
  void with_final_weights(const std::function<void()>& function);
  void exchange_average();
  // Returns the path of final or best weights: of an index if they are large.
  std::string weights_path(const char* name) const;
  void save_final_weights(const std::string& path);
  // Writes the whole tensors, which come to the leader one at a time from the rows of all processes. Returns its checksum.
  std::string write_joined_at_first(const std::string& path, const NamedTensors& wholes,
                                    const NamedTensors& rows, const Metadata& metadata) const;
  double epoch() const {
    return static_cast<double>(state_.step) / static_cast<double>(setup_.plan.steps_per_epoch);
  }
  double seconds_waited() const;
  double seconds() const { return seconds_before_ + steady_seconds() - began_; }
  bool leader() const { return world_.leader(); }
  Meter::Reduce reduce() const {
    if (world_.size() == 1) return {};
    return [this](const torch::Tensor& values) { world_.samples().sum(values); };
  }

  Setup setup_;
  RunTask& model_;
  tasks::Task& task_;
  Optimisation& optimisation_;
  const std::vector<tasks::StreamSpec> streams_;
  const TrainOptions options_;
  parallel::World& world_;
  std::unique_ptr<parallel::GradientMean> mean_;  // null if gradients are divided (Optimisation::shards)
  std::unique_ptr<parallel::Pipeline> pipeline_;  // null without one
  RunDirectory directory_;
  CheckpointStore store_;
  RunState state_;
  Meter meter_;
  LossScale loss_scale_;
  NoiseScale noise_scale_;
  double piece_square_ = 0,
         piece_samples_ = 0;  // about the first piece of a step, if the noise scale is measured
  std::unique_ptr<tasks::Collective> collective_;
  const parallel::AxisDivision layers_;  // processes with the same samples
  StepGraphs step_graphs_;
  std::vector<std::unique_ptr<data::Loader>> loaders_;  // one per stream of the task
  std::unique_ptr<TensorBoardWriter> events_;           // a new file each time the run is continued
  std::unique_ptr<torch::autograd::profiler::RecordProfile> profiler_;
  std::optional<tasks::Findings> last_evaluation_;  // with the current weights
  LaterNumbers outcomes_;                           // scales of the gradients; not finite: skipped
  struct Unsettled {
    int64_t step;
    double share;
  };
  std::deque<Unsettled> unsettled_;                       // steps of these outcomes
  std::optional<std::vector<torch::Tensor>> statistics_;  // found once
  StepProgress progress_;
  StepTime total_, interval_;
  std::map<std::string, parallel::Traffic> traffic_;  // at the start of the interval
  int64_t first_step_ = 0, saved_step_ = -1;
  int64_t proven_step_ = -1;      // newest checkpoint with a finite loss, in this process
  std::vector<size_t> bad_read_;  // lines read from each loader
  std::set<std::string> bad_validation_, noted_;
  bool new_best_ = false;
  double began_ = steady_seconds(), seconds_before_ = 0, saved_at_ = 0, read_at_ = 0, profile_began_ = 0;
};

// `axis` has the processes that divide a batch, and must outlive it.
std::unique_ptr<tasks::Collective> make_collective(const parallel::Axis& axis);

// Returns NAME of "exp_avg.NAME", a tensor of an optimiser's state.
inline std::string name_of_parameter(const std::string& state) { return state.substr(state.find('.') + 1); }

// Returns the first pictures of a batch (at most `count`), augmented and mixed, in rows of eight.
// `preprocess` is their normalisation.
Image picture_sheet(const data::Batch& batch, const data::Preprocess& preprocess, int64_t count = 16);

}  // namespace tessera::train
