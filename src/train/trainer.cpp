#include "train/trainer.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_legacy.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/toml.h"
#include "io/file.h"
#include "io/tensorboard.h"
#include "models/model.h"
#include "parallel/data_parallel.h"
#include "train/checkpoint.h"
#include "train/meter.h"
#include "train/run_state.h"
#include "train/setup.h"
#include "train/summary.h"

namespace tessera::train {
namespace {

constexpr double kReadingSeconds = 0.5;  // between readings of the loss for observers
constexpr int64_t kPictures = 24;        // in the grid of predictions
constexpr int64_t kFirstProfiled = 2, kProfiledSteps = 10;
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

// The rows that every process evaluated, in the order of one loader.
void gather_rows(parallel::World& world, tasks::Evaluation& rows) {
  const auto everyone = [&](auto& values) {
    using Element = typename std::decay_t<decltype(values)>::value_type;
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element));
    values.clear();
    for (const std::string& part : world.gather(bytes)) {
      const auto* elements = reinterpret_cast<const Element*>(part.data());
      values.insert(values.end(), elements, elements + part.size() / sizeof(Element));
    }
  };
  everyone(rows.places), everyone(rows.labels), everyone(rows.indices);
  everyone(rows.scores), everyone(rows.targets);
  rows.samples = static_cast<int64_t>(rows.places.size());
  std::vector<size_t> order(rows.places.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows.places[a] < rows.places[b]; });
  const auto arrange = [&](auto& values) {
    if (values.empty()) return;
    const size_t width = values.size() / order.size();
    const auto before = values;
    for (size_t i = 0; i < order.size(); ++i)
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(order[i] * width), width,
                  values.begin() + static_cast<std::ptrdiff_t>(i * width));
  };
  arrange(rows.labels), arrange(rows.indices), arrange(rows.scores), arrange(rows.targets);
  arrange(rows.places);
}

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
  Trainer(Setup setup, const TrainOptions& options, parallel::World& world);
  RunSummary run();

 private:
  // Before the first step.
  void start();
  void claim_directory();
  std::optional<StoredCheckpoint> stored_checkpoint();
  std::optional<StoredCheckpoint> agreed_checkpoint();
  void open_files();
  void open_loaders();
  void restore(const StoredCheckpoint& stored);
  void check_disk() const;

  // The loop.
  void train_step();
  tasks::StepOutput compute_gradients(const tasks::Batch& batch, int64_t first, double share);
  bool all_finite(const tasks::StepOutput& output, const Clipped& clipped);
  void after_step();
  void log();
  void end_epoch();
  void evaluate();
  void checkpoint();
  void write_checkpoint();
  bool evaluation_due() const;
  bool checkpoint_due() const;
  bool stopping();
  void profile();
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
  bool leader() const { return world_.leader(); }
  Meter::Reduce reduce() const {
    if (world_.size() == 1) return {};
    return [this](const torch::Tensor& values) { world_.sum(values); };
  }

  Setup setup_;
  const TrainOptions options_;
  parallel::World& world_;
  parallel::GradientMean mean_;
  RunDirectory directory_;
  CheckpointStore store_;
  RunState state_;
  Meter meter_;
  std::unique_ptr<data::Loader> loader_, unlabelled_loader_;
  data::BadImages bad_before_;                 // of loaders that gave way to one of another size
  std::unique_ptr<TensorBoardWriter> events_;  // a new file each time the run is continued
  std::unique_ptr<torch::autograd::profiler::RecordProfile> profiler_;
  std::optional<tasks::Evaluation> last_evaluation_;  // of the weights as they are
  StepProgress progress_;
  StepTime total_, interval_;
  parallel::Traffic traffic_;  // when the interval began
  int64_t first_step_ = 0, saved_step_ = -1;
  size_t bad_told_ = 0;
  bool new_best_ = false;
  double began_ = steady_seconds(), seconds_before_ = 0, saved_at_ = 0, read_at_ = 0;
};

Trainer::Trainer(Setup setup, const TrainOptions& options, parallel::World& world)
    : setup_(std::move(setup)),
      options_(options),
      world_(world),
      // Drop path may drop a branch for all of a process' samples.
      mean_(world, setup_.trained, setup_.plan.processes > 1),
      directory_(setup_.recipe.train.output),
      store_(directory_.file("checkpoints")),
      meter_(setup_.task->step_metrics(), setup_.device, setup_.clip.mode != "none") {}

RunSummary Trainer::run() {
  start();
  if (state_.evaluation_pending) after_step();
  while (state_.step < setup_.plan.steps) {
    if (!options_.profile.empty() && leader()) profile();
    train_step();
    after_step();
  }
  profiler_.reset();
  return summarise();
}

// Starts and ends the trace; writing it is the profiler's work.
void Trainer::profile() {
  const int64_t done = state_.step - first_step_;
  if (done == kFirstProfiled) {
    write_text_atomic(options_.profile, "");  // says now, in one line, if it cannot be written
    profiler_ = std::make_unique<torch::autograd::profiler::RecordProfile>(options_.profile);
  }
  if (done == kFirstProfiled + kProfiledSteps) profiler_.reset();
}

// --- before the first step

void Trainer::claim_directory() {
  const bool held_run = directory_.holds_run();
  if (options_.resume == Resume::never && held_run)
    fail_usage("run directory '", directory_.path(),
               "' already holds a run: continue it with --resume, or choose ", "another --output");
  if (options_.resume == Resume::required && !held_run)
    fail_usage("run directory '", directory_.path(), "' holds no run to continue");
  directory_.claim();
  store_.prepare();
  check_disk();
}

void Trainer::open_files() {
  if (!directory_.open_metrics(state_.metrics_bytes, state_.step))
    note("metrics.jsonl is shorter than when the checkpoint was written; some of its lines are lost");
  directory_.write_recipe(write_toml(recipe_table(setup_.recipe)));
  events_ = std::make_unique<TensorBoardWriter>(directory_.path(),
                                                first_step_ + (state_.evaluation_pending ? 0 : 1));
}

void Trainer::start() {
  if (leader()) claim_directory();
  for (const std::string& line : setup_.notes) note(line);
  const auto stored = agreed_checkpoint();
  if (stored) restore(*stored);
  first_step_ = state_.step;
  if (leader()) open_files();
  setup_.model->train();
  for (Observer* observer : options_.observers) observer->started(setup_.plan, first_step_);
  open_loaders();
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

// The leader chooses, so that all processes continue from the same one.
std::optional<StoredCheckpoint> Trainer::agreed_checkpoint() {
  std::optional<StoredCheckpoint> stored;
  if (leader()) stored = stored_checkpoint();
  const std::string directory = world_.broadcast(stored ? stored->directory : "");
  if (!leader() && !directory.empty()) stored = read_checkpoint(directory);
  return stored;
}

// Those of the epoch that is to begin, or in progress.
void Trainer::open_loaders() {
  data::Preprocess preprocess = setup_.recipe.preprocess;
  preprocess.size = setup_.input_size(state_.position.epoch);
  const auto transform = data::make_train_transform(preprocess, setup_.recipe.augment);
  data::LoaderConfig config = setup_.train_loader_config();
  config.rank = world_.rank(), config.world_size = world_.size();
  loader_ = std::make_unique<data::Loader>(*setup_.train_source, transform, config, state_.position);
  if (!setup_.unlabelled_source) return;
  config = setup_.unlabelled_loader_config();
  config.rank = world_.rank(), config.world_size = world_.size();
  const int64_t batches = setup_.unlabelled_source->size() / config.batch_size;
  unlabelled_loader_ =
      std::make_unique<data::Loader>(*setup_.unlabelled_source, transform, config,
                                     data::LoaderPosition{state_.step / batches, state_.step % batches});
}

void Trainer::restore(const StoredCheckpoint& stored) {
  const std::string where = stored.path("manifest.json");
  const std::string others = check_same_run(stored.state, setup_, options_.allow_other_threads, where);
  if (!others.empty()) note(others);
  state_ = read_state(stored.state, where);
  state_.step = stored.step;
  seconds_before_ = state_.seconds;
  if (leader()) meter_.load_state(state_.meter);  // the sums are of all processes together
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
  std::optional<data::Batch> loaded;
  {
    RECORD_USER_SCOPE("wait for data");
    loaded = loader_->next();
  }
  check(loaded.has_value(), "the training data ended early: ", setup_.plan.train_data);
  setup_.mix(*loaded, state_.step);
  tasks::Batch batch = tasks::to_device(*loaded, setup_.device, setup_.precision);
  const int64_t first = loaded->first, images = loaded->whole;
  const double share = static_cast<double>(loaded->size) / static_cast<double>(loaded->whole);
  loader_->recycle(std::move(*loaded));
  if (unlabelled_loader_) {
    auto more = unlabelled_loader_->next();
    batch.unlabelled = tasks::to_device(*more, setup_.device, setup_.precision).images;
    unlabelled_loader_->recycle(std::move(*more));
  }
  if (!setup_.soft_mask.empty())
    dynamic_cast<models::SoftMasked&>(*setup_.model)
        .set_soft_mask(setup_.soft_mask[static_cast<size_t>(state_.step)]);
  const tasks::StepOutput output = compute_gradients(batch, first, share);
  const Clipped clipped = clip_gradients(setup_.clip, setup_.clipped);
  progress_.learning_rate = setup_.schedule->rate(state_.step);
  const bool finite = all_finite(output, clipped);
  if (finite) {
    RECORD_USER_SCOPE("optimiser and moving average");
    setup_.optimiser->step(progress_.learning_rate, clipped.scale);
    if (setup_.ema) setup_.ema->update(setup_.model_state);
    meter_.add(output, clipped.norm, share);
  }
  setup_.optimiser->zero_grad();
  ++state_.step;
  state_.skipped_in_row = finite ? 0 : state_.skipped_in_row + 1;
  if (!finite) {
    ++state_.skipped;
    if (state_.skipped_in_row > setup_.recipe.train.max_skipped)
      stop_for_good(text("the loss or its gradient is not finite in ", state_.skipped_in_row,
                         state_.skipped_in_row == 1 ? " step" : " steps in a row"));
    note(text("step ", state_.step, " skipped: the loss or its gradient is not finite"));
  }
  interval_.add({steady_seconds() - began, loader_->seconds_waited() - waited, images});
}

// Piece by piece. Every loss is a mean over its samples: each counts by its share of the step's batch, and
// the mean of the processes' gradients is then that of the whole batch.
tasks::StepOutput Trainer::compute_gradients(const tasks::Batch& batch, int64_t first, double share) {
  const int64_t pieces = std::min(setup_.recipe.train.accumulate, batch.size());
  tasks::StepOutput mean;
  for (int64_t i = 0; i < pieces; ++i) {
    const tasks::Batch piece = pieces == 1 ? batch : batch.piece(i, pieces);
    const double part = static_cast<double>(piece.size()) / static_cast<double>(batch.size());
    tasks::StepOutput output;
    {
      const tasks::AutocastScope autocast(setup_.device, setup_.precision);
      output = setup_.task->step(*setup_.model, piece,
                                 {.seed = setup_.seed(),
                                  .step = static_cast<uint64_t>(state_.step),
                                  .first_sample = first + batch.size() * i / pieces});
    }
    const double weight = part * share * static_cast<double>(world_.size());
    const torch::Tensor loss = weight == 1 ? output.loss : output.loss * weight;
    if (i + 1 == pieces) mean_.prepare(loss);
    loss.backward();
    if (pieces == 1) return output;
    output.loss = output.loss.detach() * part;
    for (auto& [name, value] : output.metrics) value = value * part;
    if (i == 0) {
      mean = output;
      continue;
    }
    mean.loss += output.loss;
    for (size_t m = 0; m < mean.metrics.size(); ++m) mean.metrics[m].second += output.metrics[m].second;
  }
  return mean;
}

// The same answer in every process.
bool Trainer::all_finite(const tasks::StepOutput& output, const Clipped& clipped) {
  return !world_.any(!std::isfinite(clipped.norm) || !std::isfinite(output.loss.item<double>()));
}

// A signal to any process stops all of them after the same step.
bool Trainer::stopping() { return world_.any(interrupted()); }

void Trainer::after_step() {
  last_evaluation_.reset();
  if (!state_.evaluation_pending) {
    const bool logging = state_.step % setup_.recipe.train.log_every == 0;
    tell_progress(logging);
    if (logging) log();
    if (state_.step % setup_.plan.steps_per_epoch == 0) end_epoch();
  }
  if (evaluation_due()) evaluate();
  const bool stop = stopping();
  if (stop || world_.any(leader() && checkpoint_due())) checkpoint();
  if (stop)
    throw Error(ErrorKind::interrupted,
                text("interrupted after step ", state_.step, " of ", setup_.plan.steps, ", saved in ",
                     store_.directory_of(state_.step)));
}

void Trainer::log() {
  Metrics values = meter_.interval(reduce());
  values.emplace_back("learning_rate", progress_.learning_rate);
  if (state_.skipped > 0) values.emplace_back("skipped_steps", static_cast<double>(state_.skipped));
  if (world_.size() > 1) {
    const parallel::Traffic now = world_.traffic();
    values.emplace_back("exchanges", static_cast<double>(now.calls - traffic_.calls));
    values.emplace_back("exchange_bytes", static_cast<double>(now.bytes - traffic_.bytes));
    values.emplace_back("exchange_seconds", now.seconds - traffic_.seconds);
    traffic_ = now;
  }
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
  write("epoch", meter_.epoch(reduce()));
  meter_.new_epoch();
  total_.add(interval_);
  interval_ = {};
  state_.position = loader_->position();
  const int64_t epoch = state_.step / setup_.plan.steps_per_epoch;
  if (setup_.input_size(epoch) == setup_.input_size(epoch - 1)) return;
  const data::BadImages bad = loader_->bad_images();
  bad_before_.count += bad.count;
  bad_before_.lines.insert(bad_before_.lines.end(), bad.lines.begin(), bad.lines.end());
  bad_told_ = 0;
  open_loaders();
}

bool Trainer::evaluation_due() const {
  if (setup_.plan.validation_samples == 0) return false;
  if (state_.evaluation_pending || state_.step == setup_.plan.steps) return true;
  const double every = setup_.recipe.train.eval_every * static_cast<double>(setup_.plan.steps_per_epoch);
  return every > 0 && state_.step % std::max<int64_t>(1, std::llround(every)) == 0;
}

tasks::Evaluation Trainer::run_evaluation() {
  data::LoaderConfig config = setup_.validation_loader_config();
  config.rank = world_.rank(), config.world_size = world_.size();
  data::Loader loader(*setup_.validation_source, data::make_eval_transform(setup_.recipe.preprocess), config);
  const bool alone = world_.size() == 1;
  const auto tell = [&](int64_t done) {
    for (Observer* observer : options_.observers)
      observer->evaluating(std::min(done * world_.size(), setup_.plan.validation_samples),
                           setup_.plan.validation_samples);
    return !alone || !interrupted();  // several stop together, after the evaluation
  };
  const AveragedWeights averaged(setup_.ema.get(), setup_.model_state);
  tasks::EvaluateOptions options = {.precision = setup_.precision, .device = setup_.device, .progress = tell};
  if (!alone) options.gather = [&](tasks::Evaluation& rows) { gather_rows(world_, rows); };
  auto evaluation = setup_.task->evaluate(*setup_.model, loader, options);
  setup_.model->train();
  return evaluation;
}

void Trainer::evaluate() {
  state_.evaluation_pending = true;
  if (stopping()) return;
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
    if (leader()) save_weights(directory_.file(kBestFile), final_weights(), setup_.info);
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
  if (state_.skipped_in_row > 0) return false;  // what may have gone astray takes no good one's place
  if (train.checkpoint_steps > 0 && state_.step % train.checkpoint_steps == 0) return true;
  return train.checkpoint_seconds > 0 && steady_seconds() - saved_at_ >= train.checkpoint_seconds;
}

void Trainer::checkpoint() {
  check_weights();
  state_.position = loader_->position();
  state_.meter = meter_.state(reduce());
  state_.optimiser_steps = setup_.optimiser->steps();
  state_.ema_updates = setup_.ema ? setup_.ema->updates() : 0;
  if (leader()) write_checkpoint();
  new_best_ = false;
  saved_step_ = state_.step;
  saved_at_ = steady_seconds();
}

void Trainer::write_checkpoint() {
  const double began = steady_seconds();
  state_.seconds = seconds();
  state_.metrics_bytes = directory_.sync_metrics();
  const Metadata metadata = weights_metadata(setup_.info);
  std::vector<CheckpointFile> files = {{kWeightsFile, setup_.model_state, metadata},
                                       {kOptimiserFile, setup_.optimiser->state(), {}}};
  if (setup_.ema) files.push_back({kEmaFile, setup_.ema->tensors(), metadata});
  const uint64_t bytes = store_.save(state_.step, files, write_state(state_, setup_));
  store_.retain(state_.step, setup_.recipe.train.keep_last, state_.best_step);
  for (Observer* observer : options_.observers)
    observer->checkpointed(store_.directory_of(state_.step), bytes, steady_seconds() - began);
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
  if (!leader()) return;
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
    if (const Metrics means = meter_.interval(); !means.empty()) {  // of this process
      progress_.loss = means.front().second;
      progress_.metrics.assign(means.begin() + 1, means.begin() + 1 + shares);
    }
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
  if (leader()) save_weights(summary.model_file, final_weights(), setup_.info);
  if (!last_evaluation_ && setup_.plan.validation_samples > 0) last_evaluation_ = run_evaluation();
  if (!leader()) return summary;
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
  summary.bad_images = bad_before_.count + bad.count;
  summary.bad_image_lines = bad_before_.lines;
  summary.bad_image_lines.insert(summary.bad_image_lines.end(), bad.lines.begin(), bad.lines.end());
  return summary;
}

}  // namespace

RunSummary run_training(const Recipe& recipe, const TrainOptions& options) {
  if (recipe.train.output.empty())
    fail_usage("train.output is empty: say where the run is written (--output)");
  const bool continued = options.resume != Resume::never &&
                         !CheckpointStore(recipe.train.output + "/checkpoints").steps().empty();
  const std::unique_ptr<parallel::World> alone = options.world ? nullptr : parallel::World::alone();
  parallel::World& world = options.world ? *options.world : *alone;
  Recipe shared = recipe;
  // Processes of one machine share its cores.
  if (recipe.train.threads == 0 && world.local_size() > 1)
    shared.train.threads = std::max(1, available_cores() / world.local_size());
  Setup setup = make_setup(shared, continued, world.size());
  if (world.size() > 1 && !setup.device.is_cpu())
    fail("training over several processes runs on the CPU: use --device cpu");
  return Trainer(std::move(setup), options, world).run();
}

}  // namespace tessera::train
