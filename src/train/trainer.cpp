#include "train/trainer.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/toml.h"
#include "io/file.h"
#include "models/model.h"
#include "train/device.h"
#include "train/picture_sheet.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

constexpr int64_t kFirstProfiled = 2, kProfiledSteps = 10;
constexpr uint64_t kMostTrace = uint64_t{1} << 36;  // bytes

}  // namespace

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
  const Interruptible stretch;
  if (saved_step_ < 0) checkpoint();  // from here on there is always one to go on from
  if (state_.evaluation_pending) after_step();
  while (state_.step < setup_.plan.steps) {
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
    profiler_ = std::make_unique<torch::autograd::profiler::RecordProfile>(options_.profile);
  }
  if (done == kFirstProfiled + kProfiledSteps) end_profile();
}

// The profiler writes its list of events; the collectives, which run in another thread, are put behind them.
void Trainer::end_profile() {
  if (!profiler_) return;
  profiler_.reset();
  std::string trace = read_text(options_.profile, kMostTrace);
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
// --- before the first step

void Trainer::claim_directory() {
  const bool held_run = directory_.holds_run();
  if (options_.resume == Resume::never && held_run)
    fail_usage("run directory '", directory_.path(),
               "' already holds a run: continue it with --resume, or choose ", "another --output");
  if (options_.resume == Resume::required && !held_run)
    fail_usage("run directory '", directory_.path(), "' holds no run to continue");
  check_disk();
  directory_.claim();
  store_.prepare();
}

void Trainer::open_files() {
  if (!directory_.open_metrics(state_.metrics_bytes, state_.step))
    note("metrics.jsonl is shorter than when the checkpoint was written; some of its lines are lost");
  const std::string recipe = write_toml(recipe_table(setup_.recipe));
  directory_.write_recipe(recipe);
  events_ = std::make_unique<TensorBoardWriter>(directory_.path(),
                                                first_step_ + (state_.evaluation_pending ? 0 : 1));
  events_->text("recipe", first_step_, "```toml\n" + recipe + "```\n");
}

// Fails now if it must; the run directory itself is still to be made.
void Trainer::check_profile() const {
  if (options_.profile.empty()) return;
  const auto plain = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal();
  };
  if (plain(options_.profile).parent_path() != plain(directory_.path() + "/").parent_path())
    AtomicFile(options_.profile);
}

// Processes compute one run only where they see the same data and recipe.
void Trainer::check_same_everywhere() {
  std::string mine;
  for (const auto& [name, print] : setup_.fingerprints) mine += name + "\t" + print + "\n";
  Recipe recipe = setup_.recipe;  // but for where each machine keeps what the prints are of
  recipe.data.path = recipe.data.val_path = recipe.data.image_root = recipe.data.class_names = "";
  recipe.model.pretrained = recipe.model.select_from = recipe.distil.teacher = recipe.distil.unlabelled = "";
  mine += "recipe\t" + recipe_hash(recipe);
  const std::vector<std::string> all = world_.gather(mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto ours = split(all[0], '\n'), theirs = split(all[rank], '\n');
    size_t i = 0;
    while (i + 1 < std::min(ours.size(), theirs.size()) && ours[i] == theirs[i]) ++i;
    fail("process ", rank, " of ", world_.size(), " has another ", ours[i].substr(0, ours[i].find('\t')),
         " than the first one: every process must see the same data and recipe");
  }
}

// They are drawn alike from the seed; files of weights and the number of threads may be each process' own.
void Trainer::share_first_weights() {
  std::string sums;
  for (const auto& [name, tensor] : setup_.model_state) {
    const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
    sums += checksum_of({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  }
  const std::vector<std::string> all = world_.gather(checksum_of(as_bytes(sums)));
  if (std::count(all.begin(), all.end(), all[0]) == std::ssize(all)) return;
  note("the first weights differ between processes: all take those of the first one");
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : setup_.model_state) {
    torch::Tensor first =
        tensor.detach().to(torch::kCPU, tensor.scalar_type(), false, /*copy=*/true).contiguous();
    if (!leader()) first.zero_();
    world_.sum(first);
    tensor.copy_(first);
  }
  if (setup_.ema) setup_.ema->load_state(0, setup_.model_state);
}

void Trainer::start() {
  if (world_.size() > 1) check_same_everywhere();
  if (leader()) check_profile();
  if (leader()) claim_directory();
  for (const std::string& line : setup_.notes) note(line);
  const auto stored = agreed_checkpoint();
  if (stored)
    restore(*stored);
  else if (world_.size() > 1)
    share_first_weights();
  first_step_ = state_.step;
  if (leader()) open_files();
  setup_.model->train();
  for (Observer* observer : options_.observers) observer->started(setup_.plan, first_step_);
  open_loaders();
  saved_step_ = stored ? state_.step : -1;
  saved_at_ = steady_seconds();
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
  if (stored) store_.point_latest(stored->step);
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
  // The number of threads that is stored is the leader's; on another machine it may be another one.
  const std::string others =
      check_same_run(stored.state, setup_, options_.allow_other_threads || !leader(), where);
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
  const double began = steady_seconds(), waited = seconds_waited();
  std::optional<data::Batch> loaded;
  {
    RECORD_USER_SCOPE("wait for data");
    loaded = loader_->next();
  }
  check(loaded.has_value(), "the training data ended early: ", setup_.plan.train_data);
  setup_.mix(*loaded, state_.step);
  if (state_.step == 0 && leader())
    events_->image("first batch", 0, encode_png(picture_sheet(*loaded, setup_.recipe.preprocess)));
  tasks::Batch batch = tasks::to_device(*loaded, setup_.device, setup_.precision);
  const int64_t first = loaded->first, whole = loaded->whole;
  const double share = static_cast<double>(loaded->size) / static_cast<double>(whole);
  loader_->recycle(std::move(*loaded));
  if (unlabelled_loader_) {
    RECORD_USER_SCOPE("wait for data");
    auto more = unlabelled_loader_->next();
    batch.unlabelled = tasks::to_device(*more, setup_.device, setup_.precision).images;
    batch.first_unlabelled = whole + more->first;
    batch.labelled_share = static_cast<double>(whole) / static_cast<double>(whole + more->whole);
    unlabelled_loader_->recycle(std::move(*more));
  }
  if (setup_.recipe.train.class_weights != Value("none")) {
    const torch::Tensor weight = torch::tensor({setup_.task->weight_of(batch)}, torch::kFloat64);
    if (world_.size() > 1) world_.sum(weight);
    batch.mean_weight = weight.item<double>() / static_cast<double>(whole);
  }
  if (!setup_.soft_mask.empty())
    dynamic_cast<models::SoftMasked&>(*setup_.model)
        .set_soft_mask(setup_.soft_mask[static_cast<size_t>(state_.step)]);
  const std::vector<torch::Tensor> running = statistics();
  std::vector<torch::Tensor> before;  // the step
  for (const torch::Tensor& tensor : running) before.push_back(tensor.clone());
  const tasks::StepOutput output = compute_gradients(batch, first, share);
  if (world_.size() > 1) average(running, share);
  const Clipped clipped = clip_gradients(setup_.clip, setup_.clipped, setup_.unclipped);
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
    for (size_t i = 0; i < before.size(); ++i) running[i].copy_(before[i]);
    ++state_.skipped;
    if (state_.skipped_in_row > setup_.recipe.train.max_skipped)
      stop_for_good(text("the loss or its gradient is not finite in ", state_.skipped_in_row,
                         state_.skipped_in_row == 1 ? " step" : " steps in a row"));
    note(text("step ", state_.step, " skipped: the loss or its gradient is not finite"));
  }
  interval_.add({steady_seconds() - began, seconds_waited() - waited, whole});
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

// Every process has seen its share of the batch alone.
void Trainer::average(const std::vector<torch::Tensor>& statistics, double share) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : statistics) {
    const torch::Tensor sum = (tensor * share).to(torch::kCPU).contiguous();
    world_.sum(sum);
    tensor.copy_(sum);
  }
}

// The running means and variances of batch norms.
std::vector<torch::Tensor> Trainer::statistics() const {
  std::vector<torch::Tensor> found;
  for (const auto& [name, tensor] : setup_.model_state)
    if (name.ends_with(".running_mean") || name.ends_with(".running_var")) found.push_back(tensor);
  return found;
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
  if (evaluation_due()) {
    check_weights();
    evaluate();
  }
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
  add_traffic(values);
  values.emplace_back("images_per_second", interval_.images_per_second());
  values.emplace_back("wait_share", interval_.wait_share());
  write("train", std::move(values));
  meter_.new_interval();
  total_.add(interval_);
  interval_ = {};
  collect_bad_pictures();
}

// What each kind of collective took since the line before.
void Trainer::add_traffic(Metrics& values) {
  for (const parallel::Traffic& now : world_.traffic()) {
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
  state_.position = loader_->position();
  const int64_t epoch = state_.step / setup_.plan.steps_per_epoch;
  if (setup_.input_size(epoch) == setup_.input_size(epoch - 1)) return;
  collect_bad_pictures();
  bad_read_ = unlabelled_bad_read_ = 0;
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
  if (state_.step == setup_.plan.steps || new_best_) return true;
  if (state_.skipped_in_row > 0) return false;  // what may have gone astray takes no good one's place
  if (train.checkpoint_steps > 0 && state_.step % train.checkpoint_steps == 0) return true;
  return train.checkpoint_seconds > 0 && steady_seconds() - saved_at_ >= train.checkpoint_seconds;
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

RunSummary run_training(const Recipe& recipe, const TrainOptions& options) {
  if (recipe.train.output.empty())
    fail_usage("train.output is empty: say where the run is written (--output)");
  const bool continued = options.resume != Resume::never &&
                         !CheckpointStore(recipe.train.output + "/checkpoints").steps().empty();
  const std::unique_ptr<parallel::World> alone = options.world ? nullptr : parallel::World::alone();
  parallel::World& world = options.world ? *options.world : *alone;
  Recipe shared = recipe;
  // Processes share the cores that they may run on; a launcher may have given each its own already.
  if (recipe.train.threads == 0 && world.size() > 1) {
    const std::string mine = parallel::name_of_machine() + core_mask();
    const std::vector<std::string> all = world.gather(mine);
    const auto sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
    shared.train.threads = std::max(1, available_cores() / sharing);
  }
  std::vector<std::string> notes;
  if (world.size() > 1) shared.train.device = choose_device(recipe.train.device, world, notes).str();
  Setup setup = make_setup(shared, continued, world.size());
  setup.recipe.train.device = recipe.train.device;    // the number of a GPU is this process' own
  setup.recipe.train.threads = recipe.train.threads;  // and so is its share of the cores
  setup.notes.insert(setup.notes.begin(), notes.begin(), notes.end());
  return Trainer(std::move(setup), options, world).run();
}

}  // namespace tessera::train
