// Evaluation, output and reports of a run.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/safetensors_shards.h"
#include "report/block.h"
#include "report/grid.h"
#include "tasks/base/validation_pass.h"
#include "train/trainer_run.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

constexpr double kReadingSeconds = 0.5;  // interval between loss readings for observers
constexpr const char *kFinal = "model", *kBest = "best", *kSingleEnding = ".safetensors";

// Writes an evaluation's images for TensorBoard.
void write_images(TensorBoardWriter& events, int64_t step, const std::vector<report::Block>& blocks) {
  for (const report::Block& block : blocks) {
    const auto* images = std::get_if<report::PicturesBlock>(&block);
    if (!images || images->pictures.empty()) continue;
    std::vector<report::Cell> cells;
    for (const auto* pictures : {&images->legend, &images->pictures})
      for (const report::Picture& one : *pictures)
        cells.push_back({.picture = one.image, .caption = one.caption});
    events.image("eval/" + images->heading, step, encode_png(report::image_grid(cells)));
  }
}

std::vector<std::string> everyones_lines(parallel::World& world, std::span<const std::string> mine) {
  std::vector<std::string> lines;
  for (const std::string& part : world.gather(join(mine, "\n")))
    for (const std::string& line : split(part, '\n'))
      if (!line.empty()) lines.push_back(line);
  return lines;
}

// Returns the lines about bad images of all processes since `read`.
std::vector<std::string> new_lines(parallel::World& world, const data::Loader& loader, size_t& read) {
  const data::BadImages bad = loader.bad_images();
  const std::span fresh = std::span(bad.lines).subspan(read);
  read = bad.lines.size();
  return everyones_lines(world, fresh);
}

// Returns why a weights file cannot be opened; "" if it can.
std::string why_no_weights(const std::string& path) {
  try {
    const WeightFile file(path);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// True if a file can be opened and its metadata and tensors equal those of another, bit by bit.
bool holds_the_same(const std::string& path, const WeightFile& wanted) {
  if (!why_no_weights(path).empty()) return false;
  const WeightFile held(path);
  std::map<std::string_view, const TensorView*> views;
  for (const TensorView& one : held.tensors()) views[one.name] = &one;
  return held.metadata() == wanted.metadata() && held.tensors().size() == wanted.tensors().size() &&
         std::ranges::all_of(wanted.tensors(), [&](const TensorView& one) {
           const auto found = views.find(one.name);
           return found != views.end() && found->second->dtype == one.dtype &&
                  found->second->shape == one.shape && std::ranges::equal(found->second->bytes, one.bytes);
         });
}

Metrics values_of(const std::vector<tasks::Metric>& metrics) {
  Metrics values;
  for (const tasks::Metric& metric : metrics) values.emplace_back(metric.info.name, metric.value);
  return values;
}

}  // namespace

// Exchanges the weights of the model and their average, which has the rows of this process if they are divided.
void Trainer::exchange_average() {
  if (!optimisation_.ema) return;
  const parallel::Shards* const shards = optimisation_.shards.get();
  if (!shards) return optimisation_.ema->exchange(model_.state);
  optimisation_.ema->exchange_rows(optimisation_.averaged);
}

void Trainer::with_final_weights(const std::function<void()>& function) {
  const parallel::Shards* const shards = optimisation_.ema ? optimisation_.shards.get() : nullptr;
  const auto bring_up_to_date = [&] {
    if (!shards) return;
    if (shards->divides_weights()) shards->updated();
    shards->gather(shards->undivided(model_.state));
  };
  exchange_average();
  bring_up_to_date();
  try {
    function();
  } catch (...) {
    exchange_average();  // without the rows of other processes, which may not come
    throw;
  }
  exchange_average();
  bring_up_to_date();
}

std::string Trainer::weights_path(const char* name) const {
  uint64_t bytes = 0;
  for (const auto& one : model_.state) bytes += one.second.nbytes();
  return directory_.file(name +
                         std::string(bytes > options_.most_file_bytes ? kShardIndexEnding : kSingleEnding));
}

std::string Trainer::write_joined_at_first(const std::string& path, const NamedTensors& wholes,
                                           const NamedTensors& rows, const Metadata& metadata) const {
  const parallel::Shards* const shards = optimisation_.shards.get();
  auto next = rows.begin();
  const auto joined = [&] {
    const auto& [name, part] = *next++;
    return shards ? shards->join_at_first(name, part) : part;
  };
  std::string checksum;
  try {
    if (leader()) checksum = save_each_tensor(path, wholes, metadata, joined, options_.most_file_bytes);
  } catch (const Error&) {  // such as a full disk: the other processes wait for the rows of this one
    while (next != rows.end()) joined();
    throw;
  }
  while (next != rows.end() && !leader()) joined();
  return checksum;
}

void Trainer::save_final_weights(const std::string& path) {
  const parallel::Shards* const shards = optimisation_.shards.get();
  if (shards ? !shards->first_copy() : !leader()) return;
  const NamedTensors rows = optimisation_.ema ? optimisation_.ema->tensors()
                            : shards          ? shards->rows_of(model_.state)
                                              : model_.state;
  write_joined_at_first(path, model_.state, rows, weights_metadata(model_.info));
  if (!leader()) return;
  // A run that was continued may have the other form from before.
  const bool index = path.ends_with(kShardIndexEnding);
  const std::string stem =
      path.substr(0, path.size() - std::string_view(index ? kShardIndexEnding : kSingleEnding).size());
  remove_all(stem + (index ? kSingleEnding : kShardIndexEnding));
}

tasks::Findings Trainer::run_evaluation(bool last) {
  const bool alone = world_.size() == 1;
  tasks::EvaluateOptions options = {.precision = setup_.compute.precision, .device = setup_.compute.device};
  options.open = [&](const tasks::StreamSpec& stream) { return open_loader(stream, /*training=*/false); };
  options.progress = [&](int64_t done) {
    for (Observer* observer : options_.observers)
      observer->evaluating(std::min(done * world_.size(), setup_.plan.validation_samples),
                           setup_.plan.validation_samples);
    return !alone || !interrupted();  // several stop together, after the evaluation
  };
  const auto requested = optimisation_.shards ? optimisation_.shards->requested() : nullptr;
  const auto wait_for_all = [&] {
    if (requested) requested->wait_for_all();
  };
  if (!alone)
    options.gather = [&](const std::string& bytes) {
      wait_for_all();
      return world_.gather(bytes);
    };
  if (leader()) options.blocks = {"pictures"};
  if (last && leader()) options.blocks = {"pictures", "completions", "confusion"};
  options.seed = setup_.seed();
  tasks::Findings findings;
  with_final_weights([&] {
    const nn::UnitScope units(requested.get());
    for (const auto& evaluator : task_.evaluators()) tasks::append(findings, evaluator->run(options));
    wait_for_all();
  });
  tasks::set_training(model_.parts, true);
  for (const std::string& line : everyones_lines(world_, findings.broken.lines))
    if (bad_validation_.insert(line).second) note("left out of the evaluation, a broken image: " + line);
  for (const std::string& line : findings.notes)
    if (noted_.insert(line).second) note(line);
  return findings;
}

// Reports newly replaced images of all processes, once per run each.
void Trainer::collect_bad_pictures() {
  std::vector<std::string> lines;
  for (size_t i = 0; i < loaders_.size(); ++i) {
    const auto more = new_lines(world_, *loaders_[i], bad_read_[i]);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  for (const std::string& line : lines)
    if (state_.bad_pictures.insert(line).second) note("replaced a broken image: " + line);
  const auto count = static_cast<int64_t>(state_.bad_pictures.size());
  if (!lines.empty() && count > setup_.recipe.train.max_bad)
    fail(count, " images are bad, more than train.max_bad = ", setup_.recipe.train.max_bad,
         "; the last: ", lines.back());
}

void Trainer::evaluate() {
  state_.evaluation_pending = true;
  if (stopping()) return;
  const int64_t patience = setup_.recipe.train.stop_early;
  const bool may_be_last =
      state_.step == setup_.plan.steps || (patience > 0 && state_.evaluations_since_best + 1 >= patience);
  try {
    last_evaluation_ = run_evaluation(may_be_last);
  } catch (const Error& error) {
    tasks::set_training(model_.parts, true);
    if (error.kind == ErrorKind::interrupted) return;
    throw;
  }
  state_.evaluation_pending = false;
  const tasks::MetricInfo main = task_.main_metric();
  const double reached = last_evaluation_->metric(main.name);
  const bool measured = tasks::gives_numbers(*last_evaluation_, main) && std::isfinite(reached);
  // The leader decides, since saving divided weights takes all processes.
  new_best_ =
      world_.any(leader() && measured && (state_.best_step < 0 || main.better(reached, state_.best_metric)));
  // An evaluation without a value, such as AP without objects, is neither better nor worse.
  if (measured) state_.evaluations_since_best = new_best_ ? 0 : state_.evaluations_since_best + 1;
  if (new_best_) {
    state_.best_step = state_.step;
    state_.best_metric = reached;
    save_final_weights(weights_path(kBest));
  }
  Metrics values = values_of(last_evaluation_->metrics);
  values.emplace_back("samples", static_cast<double>(last_evaluation_->samples));
  values.emplace_back("images_per_second",
                      static_cast<double>(last_evaluation_->samples) / last_evaluation_->seconds);
  if (const RunPlan& plan = setup_.plan; plan.total_macs > 0)
    values.emplace_back("training_macs",
                        plan.total_macs * static_cast<double>(state_.step) / static_cast<double>(plan.steps));
  write("eval", std::move(values));
  if (leader()) write_images(*events_, state_.step, last_evaluation_->blocks);
  for (Observer* observer : options_.observers)
    observer->evaluated({state_.step, epoch(), last_evaluation_->samples, last_evaluation_->metrics,
                         new_best_, last_evaluation_->seconds});
  if (const std::string why = why_stopped(); !why.empty()) note(why);
}

void Trainer::checkpoint() {
  settle(/*all=*/true);
  check_weights();
  collect_bad_pictures();
  state_.position = loaders_[0]->position();
  state_.task = task_.state();
  if (loss_scale_.on()) state_.loss_scale = loss_scale_.state();
  if (setup_.recipe.train.noise_scale) state_.noise_scale = noise_scale_.state();
  state_.meter = meter_.state(reduce());
  state_.optimiser_steps = optimisation_.optimiser->steps();
  state_.ema_updates = optimisation_.ema ? optimisation_.ema->updates() : 0;
  if (leader() || optimisation_.shards) write_checkpoint();
  new_best_ = false;
  saved_step_ = state_.step;
  saved_at_ = steady_seconds();
}

// Deletes older checkpoints only once the new weights have given a finite loss, since the last update may
// have spoilt them.
void Trainer::prove_checkpoint() {
  if (saved_step_ <= proven_step_) return;
  proven_step_ = saved_step_;
  if (leader()) store_.retain(proven_step_, setup_.recipe.train.keep_last, state_.best_step);
}

// best.safetensors is a copy of the best checkpoint's weights. Rewrites it if it is missing, damaged or of
// another step (after a crash).
void Trainer::restore_best() {
  if (state_.best_step < 0) return;
  const std::string best = weights_path(kBest);
  try {
    const StoredCheckpoint from = read_checkpoint(store_.directory_of(state_.best_step));
    const WeightFile kept(from.weights_path(optimisation_.ema ? kEmaFile : kWeightsFile));
    if (holds_the_same(best, kept)) return;
    note(text("'", best, "' ",
              file_exists(best) ? "is not the file of step " : "is missing, the file of step ",
              state_.best_step, ": written again from ", from.directory));
    const std::vector<TensorView> views = own_views(model_.state, kept);
    auto next = views.begin();
    save_each_tensor(
        best, model_.state, weights_metadata(model_.info), [&] { return to_tensor(*next++); },
        options_.most_file_bytes);
  } catch (const Error& error) {
    if (const std::string why = why_no_weights(best); !why.empty())
      note(text("the best weights, of step ", state_.best_step, ", are lost: ", why, "; ", error.what()));
  }
}

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
  if (logged || read_at_ == 0 || now - read_at_ >= kReadingSeconds) {
    read_at_ = now;
    if (const Metrics means = meter_.interval(); !means.empty()) {  // of this process
      progress_.loss = means.front().second;
      progress_.metrics.clear();
      size_t place = 0;
      for (const tasks::MetricInfo& info : task_.step_metrics())
        progress_.metrics.push_back({info, means.at(++place).second});
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
  summary.model_file = weights_path(kFinal);
  const std::string best = weights_path(kBest);
  summary.best_file = state_.best_step < 0 || !file_exists(best) ? "" : best;
  summary.step_metrics = task_.step_metrics();
  summary.main_metric = task_.main_metric();
  if (!last_evaluation_) last_evaluation_ = run_evaluation(/*last=*/true);
  check_not_astray(/*stop=*/false);
  save_final_weights(summary.model_file);
  collect_bad_pictures();
  if (!leader()) return summary;
  summary.final = *last_evaluation_;
  summary.best_step = state_.best_step;
  summary.best_metric = state_.best_metric;
  summary.steps = state_.step;
  summary.stopped_early = why_stopped();
  summary.history = read_history(directory_.path());
  total_.add(interval_);
  summary.seconds = seconds();
  summary.images_per_second = total_.images_per_second();
  summary.wait_share = total_.wait_share();
  summary.exchanges = parallel::by_kind(world_.traffic());
  summary.bad_images = static_cast<int64_t>(state_.bad_pictures.size() + bad_validation_.size());
  return summary;
}

// True if the current weights may have diverged, judged by their evaluation if there is one, else by skipped
// steps.
bool Trainer::astray() const {
  return last_evaluation_ ? !tasks::gives_numbers(*last_evaluation_, task_.main_metric())
                          : state_.skipped_in_row > 0;
}

// A run that ends or is stopped by a signal (`stop`) must not replace good weights with diverged ones.
void Trainer::check_not_astray(bool stop) const {
  const bool ends = ended();
  const std::string streak =
      text("the loss or its gradient is not finite in the last ",
           state_.skipped_in_row == 1 ? "step" : text(state_.skipped_in_row, " steps"));
  if (ends && state_.skipped_in_row > 0) stop_for_good(streak);
  if (ends && astray()) stop_for_good("the loss on the validation set is not finite");
  if (stop && astray())
    throw Error(ErrorKind::interrupted,
                text("interrupted after step ", state_.step, " of ", setup_.plan.steps, ", not saved since ",
                     last_evaluation_ ? "the loss on the validation set is not finite" : streak, "; ",
                     newest_good()));
}

// An overflowing gradient spoils the weights one step before the loss shows it; such weights are not saved.
void Trainer::check_weights() const {
  const NamedTensors own = optimisation_.shards ? optimisation_.shards->rows_of(model_.state) : model_.state;
  const auto spoilt = std::ranges::find_if(own, [](const auto& one) {
    return one.second.is_floating_point() && !torch::isfinite(one.second).all().template item<bool>();
  });
  for (const std::string& name : world_.gather(spoilt == own.end() ? "" : spoilt->first))
    if (!name.empty()) stop_for_good(text("'", name, "' is no longer finite"));
}

std::string Trainer::newest_good() const {
  if (saved_step_ < 0) return "nothing was saved";
  if (proven_step_ < 0 || proven_step_ == saved_step_)
    return "the newest checkpoint is " + store_.directory_of(saved_step_);
  return "the newest checkpoint with a finite loss is " + store_.directory_of(proven_step_);
}

void Trainer::stop_for_good(const std::string& what) const {
  fail(what, " after step ", state_.step, " (epoch ", fixed(epoch(), 2), "); training stopped, ",
       newest_good(), ". A lower optimiser.lr, or train.clip_grad, may keep it finite");
}

}  // namespace tessera::train
