#include "train/run_state.h"

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "open/run_data.h"
#include "weights/migrate.h"

namespace tessera::train {
namespace {

const Value& part(const Value& table, const char* key, bool (Value::*is)() const, const std::string& where) {
  const Value* value = table.find(key);
  if (!value || !(value->*is)()) fail(where, ": no usable '", key, "'");
  return *value;
}

int64_t integer(const Value& table, const char* key, const std::string& where) {
  return part(table, key, &Value::is_int, where).as_int();
}

double number(const Value& table, const char* key, const std::string& where) {
  return part(table, key, &Value::is_number, where).as_double();
}

void check_data(const Value& stored, const Setup& setup, const std::string& where) {
  for (const auto& [name, now] : setup.model.fingerprints) {
    if (part(stored, name.c_str(), &Value::is_string, where).as_string() == now) continue;
    std::string what = name;
    std::vector<tasks::StreamSpec> streams = setup.model.task->streams();
    streams.push_back(setup.model.task->validation());
    for (const tasks::StreamSpec& stream : streams)
      if (name == stream.name + "_data") what = stream.source->describe();
    fail("the run's data has changed since ", where, " was written: ", what);
  }
}

// A run of another task has other parts and metadata, so only the task is reported.
void check_task(const Recipe& then, const Recipe& now) {
  const std::string theirs = tasks::task_name(then.task), ours = tasks::task_name(now.task);
  if (theirs != ours)
    fail_usage("the run in '", now.train.output, "' is of task ", theirs, ", the recipe is of task ", ours,
               ": continue it by its own recipe, or choose another --output");
}

void check_metadata(const Value& stored, const Setup& setup) {
  const Value* then = stored.find("task_metadata");
  if (!then) return;
  if (const std::string conflict = setup.model.task->metadata_conflict(*then); !conflict.empty())
    fail(conflict);
}

}  // namespace

Value write_state(const RunState& state, const Setup& setup) {
  Value out;
  out.set("epoch", state.position.epoch);
  out.set("batch", state.position.batch);
  out.set("evaluation_pending", state.evaluation_pending);
  out.set("best_step", state.best_step);
  out.set("best_metric", state.best_metric);
  if (setup.recipe.train.stop_early > 0) out.set("evaluations_since_best", state.evaluations_since_best);
  out.set("seconds", state.seconds);
  out.set("metrics_bytes", static_cast<int64_t>(state.metrics_bytes));
  out.set("meter", state.meter);
  out.set("optimiser_steps", state.optimiser_steps);
  out.set("ema_updates", state.ema_updates);
  out.set("skipped", state.skipped);
  out.set("skipped_in_row", state.skipped_in_row);
  out.set("bad_pictures", Value::Array(state.bad_pictures.begin(), state.bad_pictures.end()));
  out.set("seed", setup.recipe.train.seed);
  out.set("threads", setup.plan.threads);
  out.set("world_size", setup.plan.processes);
  out.set("device", torch::DeviceTypeName(setup.compute.device.type(), /*lower_case=*/true));
  out.set("task_metadata", setup.model.info.task_metadata);
  out.set("task_state", state.task);
  if (state.loss_scale.find("scale")) out.set("loss_scale", state.loss_scale);
  if (state.noise_scale.find("noise")) out.set("noise_scale", state.noise_scale);
  for (const auto& [name, value] : setup.model.fingerprints) out.set(name, value);
  out.set("started_in", started_in(setup.recipe.train.output));
  out.set("recipe_hash", recipe_hash(setup.recipe));
  out.set("recipe", setup.model.info.recipe);
  return out;
}

RunState read_state(const Value& value, int64_t step, const std::string& where) {
  const auto count = [&](const char* key, int64_t least = 0) {
    const int64_t found = integer(value, key, where);
    if (found < least) fail(where, ": '", key, "' is ", found, ", must be at least ", least);
    return found;
  };
  RunState state;
  state.step = step;
  state.position = {count("epoch"), count("batch")};
  state.evaluation_pending = part(value, "evaluation_pending", &Value::is_bool, where).as_bool();
  state.best_step = count("best_step", -1);
  state.best_metric = number(value, "best_metric", where);
  if (value.find("evaluations_since_best")) state.evaluations_since_best = count("evaluations_since_best");
  state.seconds = number(value, "seconds", where);
  state.metrics_bytes = static_cast<uint64_t>(count("metrics_bytes"));
  state.optimiser_steps = count("optimiser_steps");
  state.ema_updates = count("ema_updates");
  state.skipped = count("skipped");
  state.skipped_in_row = count("skipped_in_row");
  if (state.best_step > step || state.optimiser_steps > step ||
      state.skipped != step - state.optimiser_steps || state.skipped_in_row > state.skipped)
    fail(where, ": ", state.optimiser_steps, " updates, ", state.skipped, " skipped steps and the best step ",
         state.best_step, " are not those of a run at step ", step);
  for (const Value& line : part(value, "bad_pictures", &Value::is_array, where).as_array()) {
    if (!line.is_string()) fail(where, ": no usable 'bad_pictures'");
    state.bad_pictures.insert(line.as_string());
  }
  if (value.find("task_state")) state.task = part(value, "task_state", &Value::is_table, where);
  if (value.find("loss_scale")) state.loss_scale = part(value, "loss_scale", &Value::is_table, where);
  if (value.find("noise_scale")) state.noise_scale = part(value, "noise_scale", &Value::is_table, where);
  state.meter = part(value, "meter", &Value::is_table, where);
  return state;
}

std::string check_same_run(const Value& manifest, const Setup& setup, bool allow_other_threads,
                           const std::string& where) {
  const Value stored = migrate_state(manifest);
  const Recipe then =
      read_recipe(parse_toml(part(stored, "recipe", &Value::is_string, where).as_string(), where), where);
  check_task(then, setup.recipe);
  check_metadata(stored, setup);
  if (const std::string conflict = recipe_conflict(then, setup.recipe); !conflict.empty())
    fail_usage("the run cannot be continued with another recipe: ", conflict);
  check_data(stored, setup, where);
  const int64_t processes = integer(stored, "world_size", where);
  if (processes != setup.plan.processes)
    return text("the run was made by ", processes, processes == 1 ? " process" : " processes",
                ", now there are ", setup.plan.processes, ": sums are rounded in another order");
  const parallel::ParallelConfig &before = then.parallel, &now = setup.recipe.parallel;
  if (!(before.tensor == now.tensor && before.pipeline == now.pipeline))
    return "the run divided layers and blocks otherwise (parallel.tensor, parallel.pipeline): sums are "
           "rounded in another order";
  const std::string device = part(stored, "device", &Value::is_string, where).as_string();
  const std::string ours = torch::DeviceTypeName(setup.compute.device.type(), /*lower_case=*/true);
  if (device != ours)
    return text("the run was made on ", device, ", now it is on ", ours,
                ": sums are rounded in another order");
  const int64_t threads = integer(stored, "threads", where);
  if (threads != setup.plan.threads && setup.compute.device.is_cpu() && !allow_other_threads)
    fail_usage("the run was made with ", threads, " compute threads, now there are ", setup.plan.threads,
               ": sums would be rounded in another order. Use --threads ", threads,
               ", or allow other threads");
  return "";
}

}  // namespace tessera::train
