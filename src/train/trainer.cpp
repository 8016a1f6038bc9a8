#include "train/trainer.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>

#include "core/config.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/value.h"
#include "io/files/file.h"
#include "nn/units.h"
#include "open/device.h"
#include "ops/inference.h"
#include "tasks/base/validation_pass.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

constexpr int64_t kFirstProfiled = 2, kProfiledSteps = 10;
constexpr const char* kUnfinishedTrace = ".part";
constexpr uint64_t kMostTrace = uint64_t{1} << 36;  // bytes

std::vector<std::string> names_of_metrics(const std::vector<tasks::MetricInfo>& metrics) {
  std::vector<std::string> names;
  for (const tasks::MetricInfo& metric : metrics) names.push_back(metric.name);
  return names;
}

}  // namespace

Trainer::Trainer(Setup setup, const TrainOptions& options, parallel::World& world)
    : setup_(std::move(setup)),
      model_(setup_.model),
      task_(*model_.task),
      optimisation_(setup_.optimisation),
      streams_(task_.streams()),
      options_(options),
      world_(world),
      directory_(setup_.recipe.train.output),
      store_(directory_.file("checkpoints")),
      meter_(names_of_metrics(task_.step_metrics()), setup_.compute.device,
             optimisation_.clip.mode != "none"),
      loss_scale_(setup_.recipe.train.precision == RunPrecision::fp16),
      collective_(make_collective(world.samples())),
      layers_(world.axis(parallel::AxisName::tensor)),
      step_graphs_(task_, [this](const tasks::Inputs& inputs) { return piece_loss(inputs); }) {
  // Drop path may drop a branch for all samples of a process.
  if (world.axis(parallel::AxisName::pipeline).size() > 1)
    pipeline_ = std::make_unique<parallel::Pipeline>(world, units_of(model_.parts));
  if (!optimisation_.shards)
    mean_ = std::make_unique<parallel::GradientMean>(world, optimisation_.trained, setup_.plan.processes > 1);
}

RunSummary Trainer::run() {
  start();
  const Interruptible stretch;
  if (saved_step_ < 0) checkpoint();  // from here on there is always a checkpoint to continue from
  if (state_.evaluation_pending) after_step();
  while (!ended()) {
    if (!options_.profile.empty() && leader()) profile();
    train_step();
    after_step();
  }
  end_profile();
  return summarise();
}

void Trainer::profile() {
  const int64_t done = state_.step - first_step_;
  if (done == std::min(kFirstProfiled, setup_.plan.steps - first_step_ - 1)) {
    world_.start_recording();
    profile_began_ = steady_seconds();
    profiler_ =
        std::make_unique<torch::autograd::profiler::RecordProfile>(options_.profile + kUnfinishedTrace);
  }
  if (done == kFirstProfiled + kProfiledSteps) end_profile();
}

// The profiler writes its list of events; the events of the collectives' thread are appended.
void Trainer::end_profile() {
  if (!profiler_) return;
  profiler_.reset();
  const std::string unfinished = options_.profile + kUnfinishedTrace;
  std::string trace = read_text(unfinished, kMostTrace);
  remove_all(unfinished);
  const size_t end = trace.rfind(']');
  check(end != std::string::npos, "the profiler left no list of events in '", options_.profile, "'");
  trace.resize(end);
  for (const parallel::Collective& done : world_.stop_recording())
    trace += text(", {\"name\": \"", done.kind,
                  "\", \"ph\": \"X\", \"ts\": ", fixed(1e6 * (done.began - profile_began_), 3),
                  ", \"dur\": ", fixed(1e6 * done.seconds, 3),
                  ", \"tid\": 0, \"pid\": \"collectives\", \"args\": {\"bytes\": ", done.bytes, "}}");
  write_text_atomic(options_.profile, trace + "]\n");
}

// --- the loop

std::unique_ptr<data::Loader> Trainer::open_loader(const tasks::StreamSpec& stream, bool training,
                                                   data::LoaderPosition start) {
  const parallel::Axis& axis = training ? world_.samples() : world_.all();  // evaluations run whole layers
  const auto config = loader_config(setup_.recipe.train, stream, training, {axis.rank(), axis.size()});
  const int64_t side = training ? input_size(setup_.recipe, setup_.plan, state_.position.epoch)
                                : setup_.recipe.preprocess.size;
  return std::make_unique<data::Loader>(*stream.source, stream.transform(side), config, start);
}

// Opens the loaders of the current epoch. All streams except the first are endless.
void Trainer::open_loaders() {
  loaders_.clear();
  for (size_t i = 0; i < streams_.size(); ++i) {
    const int64_t batch_size = loader_config(setup_.recipe.train, streams_[i], true).batch_size,
                  batches = streams_[i].source->size() / batch_size;
    const data::LoaderPosition further{state_.step / batches, state_.step % batches};
    loaders_.push_back(open_loader(streams_[i], true, i == 0 ? state_.position : further));
  }
  bad_read_.assign(loaders_.size(), 0);
}

double Trainer::seconds_waited() const {
  double seconds = 0;
  for (const auto& loader : loaders_) seconds += loader->seconds_waited();
  return seconds;
}

// The next batch of every stream, prepared and on the device.
tasks::Inputs Trainer::next_inputs() {
  std::vector<data::Batch> batches;
  {
    RECORD_USER_SCOPE("wait for data");
    for (const auto& loader : loaders_) {
      auto batch = loader->next();
      check(batch.has_value(), "the training data ended early: ", setup_.plan.train_data);
      batches.push_back(std::move(*batch));
    }
  }
  task_.prepare(batches, {setup_.seed(), state_.step});
  if (state_.step == 0 && leader() && batches[0].find("image"))
    events_->image("first batch", 0, encode_png(picture_sheet(batches[0], setup_.recipe.preprocess)));
  tasks::Inputs inputs;
  for (size_t i = 0; i < batches.size(); ++i)
    inputs.streams.push_back(
        tasks::to_device(batches[i], streams_[i].name, setup_.compute.device, setup_.compute.precision));
  return inputs;
}

void Trainer::train_step() {
  const double began = steady_seconds(), waited = seconds_waited();
  const tasks::Inputs inputs = next_inputs();
  const int64_t whole = inputs.main().whole;
  const double share = static_cast<double>(inputs.size()) / static_cast<double>(whole);
  const models::TrainingStep step{state_.step, setup_.plan.steps, setup_.plan.steps_per_epoch};
  for (const tasks::BackbonePart& part : task_.backbones())
    if (part.model->before_step(step)) step_graphs_.forget();
  task_.before_step(step);
  const std::vector<torch::Tensor>& running = statistics();
  std::vector<torch::Tensor> before;  // the step
  for (const torch::Tensor& tensor : running) before.push_back(tensor.clone());
  const StepMeans means = compute_gradients(inputs);
  if (world_.size() > 1) average(running, share);
  if (ends_steps_there()) {
    finish_there(step, means, running, before);
    interval_.add({steady_seconds() - began, seconds_waited() - waited, whole});
    return;
  }
  loss_scale_.unscale(optimisation_.trained);
  if (setup_.recipe.train.noise_scale) measure_noise(whole);
  const parallel::Shards* const shards = optimisation_.shards.get();
  NormOfAll norm_of_all;
  if (shards) norm_of_all = [shards](double own, double p) { return shards->norm_of_all(own, p); };
  const Clipped clipped =
      clip_gradients(optimisation_.clip, optimisation_.clipped, optimisation_.unclipped, norm_of_all);
  progress_.learning_rate = optimisation_.schedule->rate(state_.step);
  const bool finite = all_finite(means, clipped);
  if (finite) {
    RECORD_USER_SCOPE("optimiser and moving average");
    optimisation_.optimiser->step(progress_.learning_rate, clipped.scale,
                                  optimisation_.schedule->decay_factor(state_.step));
    if (shards) shards->updated();
    task_.after_step(step);  // a momentum teacher follows before it is averaged
    if (shards) shards->take();
    if (optimisation_.ema) optimisation_.ema->update(optimisation_.averaged);
    meter_.add(means, torch::full({}, clipped.norm, means.loss.options().dtype(torch::kFloat64)));
  }
  optimisation_.optimiser->zero_grad();
  ++state_.step;
  if (!finite) {
    for (size_t i = 0; i < before.size(); ++i) running[i].copy_(before[i]);
    ++state_.skipped;
  }
  count_skipped(finite, state_.step, finite || std::isfinite(means.loss.item<double>()));
  interval_.add({steady_seconds() - began, seconds_waited() - waited, whole});
  if (finite) prove_checkpoint();
}

// In fp16, overflowing gradients only lower the loss scale, as long as it can fall; they do not mean
// divergence.
void Trainer::count_skipped(bool finite, int64_t step, bool loss_is_finite) {
  const bool scale_fell = loss_scale_.update(finite) && !finite;
  if (scale_fell && !world_.any(!loss_is_finite))
    return note(text("step ", step, " skipped: its gradient is beyond fp16; the loss scale is now ",
                     loss_scale_.scale()));
  state_.skipped_in_row = finite ? 0 : state_.skipped_in_row + 1;
  if (finite) return;
  if (state_.skipped_in_row > setup_.recipe.train.max_skipped)
    stop_for_good(text("the loss or its gradient is not finite in ", state_.skipped_in_row,
                       state_.skipped_in_row == 1 ? " step" : " steps in a row"));
  note(text("step ", step, " skipped: the loss or its gradient is not finite"));
}

// Each process saw only its share of the batch.
void Trainer::average(const std::vector<torch::Tensor>& statistics, double share) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : statistics) {
    const torch::Tensor sum = (tensor * share).contiguous();
    world_.samples().sum(sum);
    tensor.copy_(sum);
  }
}

// Returns the running means and variances of batch norms.
const std::vector<torch::Tensor>& Trainer::statistics() {
  if (statistics_) return *statistics_;
  auto& found = statistics_.emplace();
  for (const auto& [name, tensor] : model_.state)
    if (name.ends_with(".running_mean") || name.ends_with(".running_var")) found.push_back(tensor);
  return found;
}

// Returns the same value in every process.
bool Trainer::all_finite(const StepMeans& means, const Clipped& clipped) {
  return !world_.any(!std::isfinite(clipped.norm) || !std::isfinite(means.loss.item<double>()));
}

// True if the metric has not improved for train.stop_early evaluations.
bool Trainer::stopped_early() const {
  const int64_t patience = setup_.recipe.train.stop_early;
  return patience > 0 && !state_.evaluation_pending && state_.evaluations_since_best >= patience;
}

// Returns the reason for an early end; "" for a complete run.
std::string Trainer::why_stopped() const {
  if (!stopped_early() || state_.step == setup_.plan.steps) return "";
  return text(
      "stopped early after step ", state_.step, " of ", setup_.plan.steps, ": ", task_.main_metric().name,
      " has not improved in ", counted(state_.evaluations_since_best, "evaluation"), " since epoch ",
      fixed(static_cast<double>(state_.best_step) / static_cast<double>(setup_.plan.steps_per_epoch), 2),
      " (train.stop_early)");
}

// A signal to any process stops all of them after the same step.
bool Trainer::stopping() { return world_.any(interrupted()); }

void Trainer::after_step() {
  last_evaluation_.reset();
  if (leader()) directory_.check_there();
  if (!state_.evaluation_pending) {
    // Logs small sets at least once per epoch.
    const bool logging =
        state_.step % std::min(setup_.recipe.train.log_every, setup_.plan.steps_per_epoch) == 0;
    const bool epoch_ends = state_.step % setup_.plan.steps_per_epoch == 0;
    if (logging || epoch_ends) settle(/*all=*/true);
    tell_progress(logging);
    if (logging) log();
    if (epoch_ends) end_epoch();
  }
  if (ended() || evaluation_due()) settle(/*all=*/true);
  check_not_astray(/*stop=*/false);
  if (evaluation_due()) {
    check_weights();
    evaluate();
  }
  const bool stop = stopping();
  if (stop || checkpoint_due()) settle(/*all=*/true);
  check_not_astray(stop);
  if (stop || world_.any(leader() && checkpoint_due())) checkpoint();
  if (last_evaluation_ && saved_step_ == state_.step) prove_checkpoint();
  if (stop)
    throw Error(ErrorKind::interrupted,
                text("interrupted after step ", state_.step, " of ", setup_.plan.steps, ", saved in ",
                     store_.directory_of(state_.step)));
}

void Trainer::log() {
  Metrics values = meter_.interval(reduce());
  values.emplace_back("learning_rate", progress_.learning_rate);
  if (state_.skipped > 0) values.emplace_back("skipped_steps", static_cast<double>(state_.skipped));
  if (loss_scale_.on()) values.emplace_back("loss_scale", loss_scale_.scale());
  if (const double scale = noise_scale_.value(); std::isfinite(scale))
    values.emplace_back("noise_scale", scale);
  add_traffic(values);
  values.emplace_back("images_per_second", interval_.images_per_second());
  values.emplace_back("wait_share", interval_.wait_share());
  write("train", std::move(values));
  meter_.new_interval();
  total_.add(interval_);
  interval_ = {};
  collect_bad_pictures();
}

// Adds each kind of collective's traffic since the previous line.
void Trainer::add_traffic(Metrics& values) {
  for (const parallel::Traffic& now : parallel::by_kind(world_.traffic())) {
    parallel::Traffic& before = traffic_[now.kind];
    values.emplace_back(now.kind + "_exchanges", static_cast<double>(now.calls - before.calls));
    values.emplace_back(now.kind + "_bytes", static_cast<double>(now.bytes - before.bytes));
    values.emplace_back(now.kind + "_seconds", now.seconds - before.seconds);
    before = now;
  }
}

void Trainer::end_epoch() {
  write("epoch", meter_.epoch(reduce()));
  meter_.new_epoch();
  total_.add(interval_);
  interval_ = {};
  state_.position = loaders_[0]->position();
  const int64_t epoch = state_.step / setup_.plan.steps_per_epoch;
  if (input_size(setup_.recipe, setup_.plan, epoch) == input_size(setup_.recipe, setup_.plan, epoch - 1))
    return;
  collect_bad_pictures();
  open_loaders();
}

bool Trainer::evaluation_due() const {
  if (state_.evaluation_pending || state_.step == setup_.plan.steps) return true;
  const double every = setup_.recipe.train.eval_every * static_cast<double>(setup_.plan.steps_per_epoch);
  return every > 0 && every < static_cast<double>(setup_.plan.steps) &&
         state_.step % std::max<int64_t>(1, std::llround(every)) == 0;
}

bool Trainer::checkpoint_due() const {
  const TrainConfig& train = setup_.recipe.train;
  if (ended() || new_best_) return true;
  if (astray()) return false;  // weights that may have diverged must not replace a good checkpoint
  if (train.checkpoint_steps > 0 && state_.step % train.checkpoint_steps == 0) return true;
  return train.checkpoint_seconds > 0 && steady_seconds() - saved_at_ >= train.checkpoint_seconds;
}

namespace {

// Keeps reading images as stored in a run that began before orientation was applied by default.
void keep_orientation(Recipe& recipe, std::vector<std::string>& notes) {
  const std::string own = recipe.train.output + "/recipe.toml";
  if (!recipe.preprocess.apply_exif || !file_exists(own)) return;
  try {
    if (load_recipe(own).preprocess.apply_exif) return;
  } catch (const Error&) {
    return;  // damaged: the checkpoint's recipe decides
  }
  recipe.preprocess.apply_exif = false;
  notes.emplace_back("images are read as stored, without their EXIF orientation, as the run began");
}

// True if torchrun chose one thread for each process, as it does unless the user chose a number.
bool set_by_torchrun() { return std::getenv("TORCHELASTIC_RUN_ID") && environment_threads() == 1; }

// Processes share their available cores; a launcher may have assigned separate cores to each.
int share_of_cores(parallel::World& world) {
  const std::string mine = parallel::name_of_machine() + core_mask();
  const std::vector<std::string> all = world.gather(mine);
  const auto sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
  const int share = std::max(1, available_cores() / sharing);
  return std::min(share, environment_threads().value_or(share));
}

// The groups of processes follow from [parallel], so they are compared before there are any.
void require_same_layout(const parallel::ParallelConfig& config, parallel::World& world) {
  const std::vector<std::string> all = world.gather(write_toml(write_config(config)));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail("process ", rank, " of ", world.size(),
           " has another [parallel] than the first one: every process must divide the run alike");
}

}  // namespace

RunSummary run_training(const Recipe& recipe, const TrainOptions& options) {
  if (recipe.train.output.empty()) fail_usage("train.output is empty: give a run directory (--output)");
  const bool continued = options.resume != Resume::never &&
                         !CheckpointStore(recipe.train.output + "/checkpoints").steps().empty();
  const std::unique_ptr<parallel::World> alone = options.world ? nullptr : parallel::World::alone();
  parallel::World& world = options.world ? *options.world : *alone;
  // Checked first, since "auto" means the model of an existing run, which other weights may not match.
  if (options.resume != Resume::required && world.leader())
    RunDirectory(recipe.train.output).require_no_run(options.resume == Resume::automatic);
  parallel::require_trainable(recipe.parallel);
  require_same_layout(recipe.parallel, world);
  world.lay_out(recipe.parallel);
  parallel::require_trainable(recipe.parallel, world.mesh());
  Recipe shared = recipe;
  if (recipe.train.threads == 0 && world.size() > 1) shared.train.threads = share_of_cores(world);
  std::vector<std::string> notes;
  if (world.size() > 1)
    shared.train.device = choose_device(recipe.train.device, world, notes).str();
  else if (const std::string why = recipe.train.device == "auto" ? why_gpu_is_idle() : ""; !why.empty())
    notes.push_back("training on the CPU: " + why);
  if (world.size() > 1 && recipe.train.threads == 0 && set_by_torchrun())
    notes.emplace_back(
        "each process has one thread, as torchrun set OMP_NUM_THREADS=1: set train.threads for more");
  if (continued) keep_orientation(shared, notes);
  Setup setup = make_setup(shared, continued, world.size(), &world);
  setup.recipe.train.device = recipe.train.device;    // the GPU index is this process' own
  setup.recipe.train.threads = recipe.train.threads;  // as is its share of the cores
  setup.model.notes.insert(setup.model.notes.begin(), notes.begin(), notes.end());
  return Trainer(std::move(setup), options, world).run();
}

}  // namespace tessera::train
