#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/toml.h"
#include "io/file.h"
#include "io/tensorboard.h"
#include "train/checkpoint.h"
#include "train/meter.h"
#include "train/run_state.h"
#include "train/setup.h"
#include "train/summary.h"

namespace tessera::train {
namespace {

constexpr double kReadingSeconds = 0.5;  // between readings of the loss for observers
constexpr int64_t kPictures = 24;        // in the grid of predictions
constexpr const char* kFinalFile = "model.safetensors";
constexpr const char* kBestFile = "best.safetensors";

// Puts the moving average into the model for as long as it lives.
class AveragedWeights {
 public:
  AveragedWeights(Ema* ema, const NamedTensors& model) : ema_(ema), model_(model) {
    if (ema_) ema_->exchange(model_);
  }
  ~AveragedWeights() {
    if (ema_) ema_->exchange(model_);
  }
  AveragedWeights(const AveragedWeights&) = delete;

 private:
  Ema* ema_;
  const NamedTensors& model_;
};

// Time spent in training steps, evaluation and checkpoints left out.
struct StepTime {
  double seconds = 0, waited = 0;
  int64_t images = 0;
  double images_per_second() const { return seconds > 0 ? static_cast<double>(images) / seconds : 0; }
  double wait_share() const { return seconds > 0 ? waited / seconds : 0; }
  void add(const StepTime& other) {
    seconds += other.seconds, waited += other.waited, images += other.images;
  }
};

class Trainer {
 public:
  Trainer(Setup setup, const TrainOptions& options);
  RunSummary run();

 private:
  // Before the first step.
  void start();
  std::optional<StoredCheckpoint> stored_checkpoint();
  void restore(const StoredCheckpoint& stored);
  void check_disk() const;

  // The loop.
  void train_step();
  void after_step();
  void log();
  void end_epoch();
  void evaluate();
  void checkpoint();
  bool evaluation_due() const;
  bool checkpoint_due() const;
  void check_finite(double loss) const;
  void check_weights() const;
  [[noreturn]] void stop_for_good(const std::string& what) const;

  // What others are told.
  void write(const std::string& kind, Metrics values);
  void tell_progress(bool logged);
  void note(const std::string& line) const;
  RunSummary summarise();

  tasks::Evaluation run_evaluation();
  // What is evaluated and kept in the end.
  const NamedTensors& final_weights() const {
    return setup_.ema ? setup_.ema->tensors() : setup_.model_state;
  }
  double epoch() const {
    return static_cast<double>(state_.step) / static_cast<double>(setup_.plan.steps_per_epoch);
  }
  double seconds() const { return seconds_before_ + steady_seconds() - began_; }

  Setup setup_;
  const TrainOptions options_;
  RunDirectory directory_;
  CheckpointStore store_;
  RunState state_;
  Meter meter_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<TensorBoardWriter> events_;         // a new file each time the run is continued
  std::optional<tasks::Evaluation> last_evaluation_;  // of the weights as they are
  StepProgress progress_;
  StepTime total_, interval_;
  int64_t first_step_ = 0, saved_step_ = -1;
  size_t bad_told_ = 0;
  bool new_best_ = false;
  double began_ = steady_seconds(), seconds_before_ = 0, saved_at_ = 0, read_at_ = 0;
};

Trainer::Trainer(Setup setup, const TrainOptions& options)
    : setup_(std::move(setup)),
      options_(options),
      directory_(setup_.recipe.train.output),
      store_(directory_.file("checkpoints")),
      meter_(setup_.task->step_metrics(), setup_.device, setup_.clip.mode != "none") {}

RunSummary Trainer::run() {
  start();
  if (state_.evaluation_pending) after_step();
  while (state_.step < setup_.plan.steps) {
    train_step();
    after_step();
  }
  return summarise();
}

// --- before the first step

void Trainer::start() {
  const bool held_run = directory_.holds_run();
  if (options_.resume == Resume::never && held_run)
    fail_usage("run directory '", directory_.path(),
               "' already holds a run: continue it with --resume, or choose ", "another --output");
  if (options_.resume == Resume::required && !held_run)
    fail_usage("run directory '", directory_.path(), "' holds no run to continue");
  directory_.claim();
  store_.prepare();
  check_disk();
  for (const std::string& line : setup_.notes) note(line);
  const auto stored = stored_checkpoint();
  if (stored) restore(*stored);
  if (!directory_.open_metrics(state_.metrics_bytes, state_.step))
    note("metrics.jsonl is shorter than when the checkpoint was written; some of its lines are lost");
  directory_.write_recipe(write_toml(recipe_table(setup_.recipe)));
  first_step_ = state_.step;
  events_ = std::make_unique<TensorBoardWriter>(directory_.path(),
                                                first_step_ + (state_.evaluation_pending ? 0 : 1));
  setup_.model->train();
  for (Observer* observer : options_.observers) observer->started(setup_.plan, first_step_);
  loader_ = std::make_unique<data::Loader>(
      *setup_.train_source, data::make_train_transform(setup_.recipe.preprocess, setup_.recipe.augment),
      setup_.train_loader_config(), state_.position);
  saved_step_ = stored ? state_.step : -1;
  saved_at_ = steady_seconds();
  if (!stored) checkpoint();  // from here on there is always one to go on from
}

std::optional<StoredCheckpoint> Trainer::stored_checkpoint() {
  std::vector<std::string> skipped;
  auto stored = store_.newest(skipped);
  if (!stored && !skipped.empty())
    fail("run directory '", directory_.path(), "': no checkpoint is usable; ", skipped.front());
  if (!stored && options_.resume == Resume::required)
    fail("run directory '", directory_.path(),
         "' has no checkpoint to continue from; --resume auto starts anew");
  for (const std::string& line : skipped) note(line);
  return stored;
}

void Trainer::restore(const StoredCheckpoint& stored) {
  const std::string where = stored.path("manifest.json");
  check_same_run(stored.state, setup_, options_.allow_other_threads, where);
  state_ = read_state(stored.state, where);
  state_.step = stored.step;
  seconds_before_ = state_.seconds;
  meter_.load_state(state_.meter);
  const auto load = [&](const char* name) { return read_tensors(SafetensorsFile(stored.path(name))); };
  copy_tensors(load(kWeightsFile), setup_.model_state, stored.path(kWeightsFile));
  if (setup_.ema) setup_.ema->load_state(state_.ema_updates, load(kEmaFile));
  setup_.optimiser->load_state(state_.optimiser_steps, load(kOptimiserFile));
  note(text("continuing from ", stored.directory));
}

void Trainer::check_disk() const {
  const uint64_t needed = setup_.plan.disk_bytes, free = free_disk_bytes(directory_.path());
  if (needed > free + store_.bytes())
    fail("the run needs up to ", human_bytes(needed), " in '", directory_.path(), "', where ",
         human_bytes(free), " are free (train.keep_last = ", setup_.recipe.train.keep_last, ")");
}

// --- the loop

void Trainer::train_step() {
  const double began = steady_seconds(), waited = loader_->seconds_waited();
  auto loaded = loader_->next();
  check(loaded.has_value(), "the training data ended early: ", setup_.plan.train_data);
  setup_.mix(*loaded, state_.step);
  const tasks::Batch batch = tasks::to_device(*loaded, setup_.device, setup_.precision);
  const int64_t images = loaded->size;
  loader_->recycle(std::move(*loaded));
  tasks::StepOutput output;
  {
    const tasks::AutocastScope autocast(setup_.device, setup_.precision);
    output = setup_.task->step(*setup_.model, batch,
                               {.seed = setup_.seed(), .step = static_cast<uint64_t>(state_.step)});
  }
  output.loss.backward();
  const Clipped clipped = clip_gradients(setup_.clip, setup_.trained);
  progress_.learning_rate = setup_.schedule->rate(state_.step);
  setup_.optimiser->step(progress_.learning_rate, clipped.scale);
  setup_.optimiser->zero_grad();
  if (setup_.ema) setup_.ema->update(setup_.model_state);
  meter_.add(output, clipped.norm);
  ++state_.step;
  if (setup_.device.is_cpu()) check_finite(output.loss.item<double>());  // nothing to wait for there
  interval_.add({steady_seconds() - began, loader_->seconds_waited() - waited, images});
}

void Trainer::after_step() {
  last_evaluation_.reset();
  if (!state_.evaluation_pending) {
    const bool logging = state_.step % setup_.recipe.train.log_every == 0;
    tell_progress(logging);
    if (logging) log();
    if (state_.step % setup_.plan.steps_per_epoch == 0) end_epoch();
  }
  if (evaluation_due()) evaluate();
  if (checkpoint_due() || interrupted()) checkpoint();
  if (interrupted())
    throw Error(ErrorKind::interrupted,
                text("interrupted after step ", state_.step, " of ", setup_.plan.steps, ", saved in ",
                     store_.directory_of(state_.step)));
}

void Trainer::log() {
  Metrics values = meter_.interval();
  check_finite(values.front().second);
  values.emplace_back("learning_rate", progress_.learning_rate);
  values.emplace_back("images_per_second", interval_.images_per_second());
  values.emplace_back("wait_share", interval_.wait_share());
  write("train", std::move(values));
  meter_.new_interval();
  total_.add(interval_);
  interval_ = {};
  const data::BadImages bad = loader_->bad_images();
  for (; bad_told_ < bad.lines.size(); ++bad_told_)
    note("replaced a broken picture: " + bad.lines[bad_told_]);
}

void Trainer::end_epoch() {
  Metrics values = meter_.epoch();
  check_finite(values.front().second);
  write("epoch", std::move(values));
  meter_.new_epoch();
  total_.add(interval_);
  interval_ = {};
}

bool Trainer::evaluation_due() const {
  if (setup_.plan.validation_samples == 0) return false;
  if (state_.evaluation_pending || state_.step == setup_.plan.steps) return true;
  const double every = setup_.recipe.train.eval_every * static_cast<double>(setup_.plan.steps_per_epoch);
  return every > 0 && state_.step % std::max<int64_t>(1, std::llround(every)) == 0;
}

tasks::Evaluation Trainer::run_evaluation() {
  data::Loader loader(*setup_.validation_source, data::make_eval_transform(setup_.recipe.preprocess),
                      setup_.validation_loader_config());
  const auto tell = [&](int64_t done) {
    for (Observer* observer : options_.observers) observer->evaluating(done, setup_.plan.validation_samples);
    return !interrupted();
  };
  const AveragedWeights averaged(setup_.ema.get(), setup_.model_state);
  auto evaluation = setup_.task->evaluate(
      *setup_.model, loader, {.precision = setup_.precision, .device = setup_.device, .progress = tell});
  setup_.model->train();
  return evaluation;
}

void Trainer::evaluate() {
  state_.evaluation_pending = true;
  if (interrupted()) return;
  try {
    last_evaluation_ = run_evaluation();
  } catch (const Error& error) {
    setup_.model->train();
    if (error.kind == ErrorKind::interrupted) return;
    throw;
  }
  state_.evaluation_pending = false;
  const double reached = last_evaluation_->metric(setup_.task->main_metric());
  new_best_ = state_.best_step < 0 || reached > state_.best_metric;
  if (new_best_) {
    state_.best_step = state_.step;
    state_.best_metric = reached;
    save_weights(directory_.file(kBestFile), final_weights(), setup_.info);
  }
  Metrics values = last_evaluation_->metrics;
  values.emplace_back("samples", static_cast<double>(last_evaluation_->samples));
  values.emplace_back("images_per_second",
                      static_cast<double>(last_evaluation_->samples) / last_evaluation_->seconds);
  write("eval", std::move(values));
  for (Observer* observer : options_.observers)
    observer->evaluated({state_.step, epoch(), last_evaluation_->samples, last_evaluation_->metrics,
                         new_best_, last_evaluation_->seconds});
}

bool Trainer::checkpoint_due() const {
  const TrainConfig& train = setup_.recipe.train;
  if (state_.step == setup_.plan.steps || new_best_) return true;
  if (train.checkpoint_steps > 0 && state_.step % train.checkpoint_steps == 0) return true;
  return train.checkpoint_seconds > 0 && steady_seconds() - saved_at_ >= train.checkpoint_seconds;
}

void Trainer::checkpoint() {
  const double began = steady_seconds();
  if (const Metrics means = meter_.interval(); !means.empty()) check_finite(means.front().second);
  check_weights();
  state_.position = loader_->position();
  state_.seconds = seconds();
  state_.metrics_bytes = directory_.sync_metrics();
  state_.meter = meter_.state();
  state_.optimiser_steps = setup_.optimiser->steps();
  state_.ema_updates = setup_.ema ? setup_.ema->updates() : 0;
  const Metadata metadata = weights_metadata(setup_.info);
  std::vector<CheckpointFile> files = {{kWeightsFile, setup_.model_state, metadata},
                                       {kOptimiserFile, setup_.optimiser->state(), {}}};
  if (setup_.ema) files.push_back({kEmaFile, setup_.ema->tensors(), metadata});
  const uint64_t bytes = store_.save(state_.step, files, write_state(state_, setup_));
  store_.retain(state_.step, setup_.recipe.train.keep_last, state_.best_step);
  new_best_ = false;
  saved_step_ = state_.step;
  saved_at_ = steady_seconds();
  for (Observer* observer : options_.observers)
    observer->checkpointed(store_.directory_of(state_.step), bytes, saved_at_ - began);
}

void Trainer::check_finite(double loss) const {
  if (!std::isfinite(loss)) stop_for_good(text("the loss is ", loss));
}

// A gradient that overflowed spoils the weights one step before the loss: what is spoilt is not saved.
void Trainer::check_weights() const {
  for (const auto& [name, tensor] : setup_.model_state)
    if (tensor.is_floating_point() && !torch::isfinite(tensor).all().item<bool>())
      stop_for_good(text("'", name, "' is no longer finite"));
}

void Trainer::stop_for_good(const std::string& what) const {
  fail(what, " after step ", state_.step, " (epoch ", fixed(epoch(), 2), "); training stopped, ",
       saved_step_ < 0 ? "nothing was saved" : "the newest checkpoint is " + store_.directory_of(saved_step_),
       ". A lower optimiser.lr, or train.clip_grad, may keep it finite");
}

// --- what others are told

void Trainer::write(const std::string& kind, Metrics values) {
  Metrics tagged;
  for (const auto& [name, value] : values) tagged.emplace_back(kind + "/" + name, value);
  events_->scalars(state_.step, tagged);
  values.emplace_back("seconds", seconds());
  directory_.write({kind, state_.step, epoch(), std::move(values)});
}

void Trainer::tell_progress(bool logged) {
  if (options_.observers.empty()) return;
  const double now = steady_seconds();
  const auto shares = static_cast<std::ptrdiff_t>(setup_.task->step_metrics().size());
  if (logged || read_at_ == 0 || now - read_at_ >= kReadingSeconds) {
    read_at_ = now;
    const Metrics means = meter_.interval();
    progress_.loss = means.front().second;
    progress_.metrics.assign(means.begin() + 1, means.begin() + 1 + shares);
    StepTime time = total_;
    time.add(interval_);
    progress_.images_per_second = time.images_per_second();
    progress_.wait_share = time.wait_share();
  }
  const RunPlan& plan = setup_.plan;
  progress_.step = state_.step, progress_.steps = plan.steps,
  progress_.steps_per_epoch = plan.steps_per_epoch;
  progress_.epoch = (state_.step - 1) / plan.steps_per_epoch;
  progress_.step_in_epoch = (state_.step - 1) % plan.steps_per_epoch + 1;
  progress_.seconds = seconds();
  const auto done = static_cast<double>(state_.step - first_step_),
             left = static_cast<double>(plan.steps - state_.step);
  progress_.seconds_left = done > 0 ? left * (now - began_) / done : 0;
  for (Observer* observer : options_.observers) {
    observer->progressed(progress_);
    if (logged) observer->logged(progress_);
  }
}

void Trainer::note(const std::string& line) const {
  for (Observer* observer : options_.observers) observer->note(line);
}

RunSummary Trainer::summarise() {
  RunSummary summary;
  summary.plan = setup_.plan;
  summary.output = directory_.path();
  summary.model_file = directory_.file(kFinalFile);
  summary.best_file = state_.best_step < 0 ? "" : directory_.file(kBestFile);
  summary.class_names = setup_.info.class_names;
  summary.multi_label = setup_.info.multi_label;
  summary.main_metric = setup_.task->main_metric();
  save_weights(summary.model_file, final_weights(), setup_.info);
  if (!last_evaluation_ && setup_.plan.validation_samples > 0) last_evaluation_ = run_evaluation();
  if (last_evaluation_) {
    summary.final_metrics = last_evaluation_->metrics;
    summary.confusion = confusion_of(*last_evaluation_);
    summary.pictures = predicted_pictures(setup_, *last_evaluation_, kPictures);
  }
  summary.best_step = state_.best_step;
  summary.best_metric = state_.best_metric;
  summary.history = read_history(directory_.path());
  total_.add(interval_);
  summary.seconds = seconds();
  summary.images_per_second = total_.images_per_second();
  summary.wait_share = total_.wait_share();
  const data::BadImages bad = loader_->bad_images();
  summary.bad_images = bad.count;
  summary.bad_image_lines = bad.lines;
  return summary;
}

}  // namespace

RunSummary run_training(const Recipe& recipe, const TrainOptions& options) {
  if (recipe.train.output.empty())
    fail_usage("train.output is empty: say where the run is written (--output)");
  const bool continued = options.resume != Resume::never &&
                         !CheckpointStore(recipe.train.output + "/checkpoints").steps().empty();
  return Trainer(make_setup(recipe, continued), options).run();
}

}  // namespace tessera::train
