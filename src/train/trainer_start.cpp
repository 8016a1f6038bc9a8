// Before the first step of a run: claims its folder, finds the checkpoint to continue from, and agrees with
// the other processes.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "train/trainer_run.h"
#include "weights/load_tensors.h"

namespace tessera::train {

void Trainer::claim_directory() {
  if (options_.resume == Resume::never) directory_.require_no_run();
  if (options_.resume == Resume::required && !directory_.holds_run())
    fail_usage("run directory '", directory_.path(), "' holds no run to continue");
  check_disk();
  directory_.claim();
  store_.prepare();
}

void Trainer::open_files() {
  for (const std::string& line : directory_.open_metrics(state_.metrics_bytes, state_.step)) note(line);
  const std::string recipe = write_toml(recipe_table(setup_.recipe));
  directory_.write_recipe(recipe);
  events_ = std::make_unique<TensorBoardWriter>(directory_.path(),
                                                first_step_ + (state_.evaluation_pending ? 0 : 1));
  events_->text("recipe", first_step_, "```toml\n" + recipe + "```\n");
}

// Fails early; the run directory itself need not exist yet.
void Trainer::check_profile() const {
  if (options_.profile.empty()) return;
  const auto plain = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal();
  };
  if (plain(options_.profile).parent_path() != plain(directory_.path() + "/").parent_path())
    AtomicFile(options_.profile);
}

// All processes must have the same data and recipe.
void Trainer::check_same_everywhere() {
  std::string mine;
  for (const auto& [name, print] : model_.fingerprints) mine += name + "\t" + print + "\n";
  Recipe recipe = setup_.recipe;  // without paths, which may differ by machine
  recipe.data.path = recipe.data.val_path = recipe.data.image_root = recipe.data.class_names = "";
  recipe.model.pretrained = recipe.model.pretrained_key = recipe.model.select_from = "";
  for (const char* key : tasks::find_task(tasks::task_name(recipe.task)).path_keys)
    if (recipe.task.find(key)) recipe.task.set(key, "");
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

// Every process must read the first one's file in the run directory.
void Trainer::check_shared_directory() {
  constexpr int kTries = 50;  // a network file system may show a new file late
  const std::string file = directory_.file(".token");
  std::string token;
  if (leader()) {
    token = checksum_of(as_bytes(text(directory_.path(), " ", steady_seconds())));
    write_text_atomic(file, token);
  }
  token = world_.broadcast(token);
  const auto sees_token = [&] {
    try {
      return read_text(file, 256) == token;
    } catch (const Error&) {
      return false;
    }
  };
  bool seen = sees_token();
  for (int i = 0; i < kTries && !seen; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = sees_token();
  }
  const std::vector<std::string> all = world_.gather(seen ? "" : parallel::name_of_machine());
  if (leader()) remove_all(file);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      fail_usage("process ", rank, " on machine '", printable(all[rank]),
                 "' does not see the run directory '", directory_.path(),
                 "' of the first process: --output must be in a folder that all machines share");
}

void Trainer::share_first_weights() {
  if (optimisation_.shards && optimisation_.shards->divides_weights()) return;  // before they were divided
  if (!train::share_first_weights(model_.state, world_)) return;
  note(kSharedNote);
  if (optimisation_.ema) optimisation_.ema->load_state(0, optimisation_.averaged);
}

void Trainer::start() {
  if (world_.size() > 1) check_same_everywhere();
  if (leader()) check_profile();
  if (leader()) claim_directory();
  if (world_.size() > 1) check_shared_directory();
  for (const std::string& line : model_.notes) note(line);
  const auto stored = agreed_checkpoint();
  if (stored)
    restore(*stored);
  else if (world_.size() > 1)
    share_first_weights();
  first_step_ = state_.step;
  if (leader()) open_files();
  if (leader() && stored) restore_best();
  tasks::set_training(model_.parts, true);
  for (Observer* observer : options_.observers) observer->started(setup_.plan, first_step_);
  open_loaders();
  saved_step_ = stored ? state_.step : -1;
  saved_at_ = steady_seconds();
}

std::optional<StoredCheckpoint> Trainer::stored_checkpoint() {
  std::vector<std::string> skipped;
  auto stored = store_.newest(skipped, [&](const StoredCheckpoint& one) {
    read_state(one.state, one.step, one.path("manifest.json"));
    if (optimisation_.ema && !one.holds(kEmaFile))
      fail("'", one.path("manifest.json"), "' does not list ", kEmaFile);
  });
  if (!stored && !skipped.empty())
    fail("run directory '", directory_.path(), "': no checkpoint is usable; ", skipped.front());
  if (!stored && options_.resume == Resume::required)
    fail("run directory '", directory_.path(),
         "' has no checkpoint to continue from; --resume auto starts a new run");
  if (!stored && options_.resume == Resume::automatic)
    note(text("nothing to resume in '", directory_.path(), "': a new run begins"));
  for (const std::string& line : skipped) note(line);
  return stored;
}

// The leader chooses, so that all processes continue from the same checkpoint.
std::optional<StoredCheckpoint> Trainer::agreed_checkpoint() {
  std::optional<StoredCheckpoint> stored;
  if (leader()) stored = stored_checkpoint();
  if (stored) store_.point_latest(stored->step);
  const std::string directory = world_.broadcast(stored ? stored->directory : "");
  if (!leader() && !directory.empty()) stored = read_checkpoint(directory);
  return stored;
}

// Returns the tensors of a file, or, if they are divided, this process's rows of each.
NamedTensors Trainer::load_parts(const StoredCheckpoint& stored, const char* name) const {
  const WeightFile file(stored.weights_path(name));
  const parallel::Shards* const shards = optimisation_.shards.get();
  if (!shards) return read_tensors(file);
  const bool of_optimiser = name == std::string(kOptimiserFile);
  NamedTensors parts;
  for (const TensorView& view : file.tensors()) {
    const torch::Tensor whole = to_tensor(view);
    const std::string tensor = of_optimiser ? name_of_parameter(view.name) : view.name;
    const bool divided =
        shards->layout().has(tensor) && !(of_optimiser && view.name.starts_with(kCountOfUpdates));
    parts.emplace_back(view.name, divided ? shards->layout().cut(tensor, whole).clone() : whole);
    file.forget(view);
  }
  return parts;
}

void Trainer::restore_weights(const WeightFile& file) {
  const parallel::Shards* const shards = optimisation_.shards.get();
  if (!shards || !shards->divides_weights()) return load_own(model_.state, file);
  const NamedTensors rows = shards->rows_of(model_.state);
  const std::map<std::string, torch::Tensor> own(rows.begin(), rows.end());
  load_own(model_.state, file, [&](const std::string& name, const torch::Tensor& whole) {
    torch::Tensor(own.at(name)).copy_(shards->layout().cut(name, whole));
  });
  shards->updated(/*frozen=*/true);
  shards->gather(shards->undivided(model_.state));
}

void Trainer::restore(const StoredCheckpoint& stored) {
  const std::string where = stored.path("manifest.json");
  // The stored number of threads is the leader's; other machines may use a different number.
  const std::string others =
      check_same_run(stored.state, setup_, options_.allow_other_threads || !leader(), where);
  if (!others.empty()) note(others);
  state_ = read_state(stored.state, stored.step, where);
  if (state_.position.epoch * setup_.plan.steps_per_epoch + state_.position.batch != state_.step)
    fail(where, ": epoch ", state_.position.epoch, " and batch ", state_.position.batch,
         " are not where step ", state_.step, " ends, with ", setup_.plan.steps_per_epoch, " steps an epoch");
  seconds_before_ = state_.seconds;
  if (leader()) meter_.load_state(state_.meter);  // the sums cover all processes together
  store_.share_frozen(stored);
  restore_weights(WeightFile(stored.weights_path(kWeightsFile)));
  if (optimisation_.ema) optimisation_.ema->load_state(state_.ema_updates, load_parts(stored, kEmaFile));
  // Earlier versions also stored moments of frozen parameters, which never changed.
  NamedTensors kept = load_parts(stored, kOptimiserFile);
  std::set<std::string> frozen;
  for (const auto& [name, parameter] : tasks::named_parameters(model_.parts))
    if (!parameter.requires_grad()) frozen.insert(name);
  std::erase_if(kept, [&](const auto& one) {  // "exp_avg.NAME"
    return frozen.contains(name_of_parameter(one.first));
  });
  optimisation_.optimiser->load_state(state_.optimiser_steps, std::move(kept));
  task_.load_state(state_.task);
  if (loss_scale_.on()) loss_scale_.load(state_.loss_scale, where);
  noise_scale_.load(state_.noise_scale, where);
  note(text("continuing from ", stored.directory));
}

void Trainer::check_disk() const {
  const uint64_t needed = setup_.plan.disk_bytes, free = free_disk_bytes(directory_.path());
  if (needed > free + store_.bytes())
    fail("the run needs up to ", human_bytes(needed), " in '", directory_.path(), "', where ",
         human_bytes(free), " are free (train.keep_last = ", setup_.recipe.train.keep_last, ")");
}

}  // namespace tessera::train
