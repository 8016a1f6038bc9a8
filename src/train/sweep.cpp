#include "train/sweep.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "recipe/recipe_files.h"

namespace tessera::train {
namespace {

constexpr size_t kMostPoints = 10000;
constexpr const char* kResult = "result.json";

struct PointConfig {
  std::string name;
  Value set;
  template <class V>
  void visit(V& v) {
    v("name", name, "name of the point");
    v("set", set, "settings laid over the recipe");
  }
};

struct FinalConfig {
  Value set;
  std::vector<int64_t> seeds;
  template <class V>
  void visit(V& v) {
    v("set", set, "settings laid over the best point's");
    v("seeds", seeds, "seeds of its runs");
  }
};

struct SweepConfig {
  Value recipe = "";
  std::vector<int64_t> seeds = {0};
  Value set, grid, final, sets;
  std::vector<PointConfig> points;
  template <class V>
  void visit(V& v) {
    v("recipe", recipe, "recipe file next to this one, or a list of them laid over one another");
    v("seeds", seeds, "each point is run with each");
    v("set", set, "settings laid over the recipe in every run");
    v("grid", grid, "a list of values per key");
    v("points", points, "points by name");
    v("final", final, "the final runs of the best point");
    v("sets", sets, "data sets: a list of folder names per group");
  }
};

// Collects the leaves of a tree of settings with their dotted keys, in order.
void leaves_of(const Value& tree, const std::string& prefix,
               std::vector<std::pair<std::string, const Value*>>& out) {
  for (const auto& [key, value] : tree.as_table()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.is_table())
      leaves_of(value, path, out);
    else
      out.emplace_back(path, &value);
  }
}

std::string short_text(const Value& value) {
  return value.is_string() ? value.as_string() : toml_text(value);
}

// Returns a safe folder name: replaces path separators, quotes, spaces and control characters by '_'.
std::string folder_name(std::string name) {
  for (char& c : name)
    if (c == '/' || c == ' ' || c == '"' || c == '\'' || static_cast<unsigned char>(c) < 32) c = '_';
  return name;
}

std::vector<SweepPoint> combinations(const Value& grid) {
  if (!grid.is_table()) fail_usage("grid is ", grid.type_name(), ", must be a table");
  std::vector<std::pair<std::string, const Value*>> axes;
  leaves_of(grid, "", axes);
  std::vector<SweepPoint> points = {{"", Value()}};
  for (const auto& [key, values] : axes) {
    if (!values->is_array() || values->as_array().empty())
      fail_usage("grid.", key, " is ", toml_text(*values), ", must be a list of values");
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points)
      for (const Value& value : values->as_array()) {
        SweepPoint next = point;
        const std::string name = key.substr(key.rfind('.') + 1) + "=" + short_text(value);
        next.name += (next.name.empty() ? "" : ",") + name;
        next.settings.set(key, value);
        more.push_back(std::move(next));
      }
    if (more.size() > kMostPoints) fail_usage("grid has more than ", kMostPoints, " points");
    points = std::move(more);
  }
  return points;
}

void check_table(const Value& settings, const char* key) {
  if (!settings.is_table()) fail_usage(key, " is ", settings.type_name(), ", must be a table");
}

void check_seeds(const std::vector<int64_t>& seeds, const char* key) {
  if (seeds.empty()) fail_usage(key, " is empty, must be a list of numbers");
  if (std::set<int64_t>(seeds.begin(), seeds.end()).size() != seeds.size())
    fail_usage(key, " names a seed twice");
}

// Returns the recipe's files, relative to that of the sweep.
std::vector<std::string> recipes_of(const Value& asked, const std::string& path) {
  const char* rule = "must be a file name or a list of file names";
  std::vector<Value> names = {asked};
  if (asked.is_array()) names = asked.as_array();
  std::vector<std::string> files;
  for (const Value& name : names) {
    if (!name.is_string()) fail_usage("recipe is ", toml_text(asked), ", ", rule);
    if (name.as_string().empty()) fail_usage("recipe is missing: which recipe is to be swept");
    files.push_back(
        (std::filesystem::path(path).parent_path() / name.as_string()).lexically_normal().string());
  }
  if (files.empty()) fail_usage("recipe is an empty list, ", rule);
  return files;
}

std::vector<SetGroup> groups_of(const Value& asked) {
  std::vector<SetGroup> groups;
  std::set<std::string> known;
  for (const auto& [name, list] : asked.as_table()) {
    if (name == "all")
      fail_usage("sets.all: the group must have another name, all sets together are called so");
    if (!list.is_array() || list.as_array().empty())
      fail_usage("sets.", name, " is ", toml_text(list), ", must be a list of folders' names");
    groups.push_back({name, {}});
    for (const Value& set : list.as_array()) {
      if (!set.is_string() || set.as_string().empty() || set.as_string() == "." || set.as_string() == ".." ||
          folder_name(set.as_string()) != set.as_string())
        fail_usage("sets.", name, " holds ", toml_text(set), ", must be the name of a folder");
      if (!known.insert(set.as_string()).second) fail_usage("[sets] names '", set.as_string(), "' twice");
      groups.back().sets.push_back(set.as_string());
    }
  }
  return groups;
}

// A pending run.
struct Task {
  std::string point, folder;
  int64_t seed;
  bool final;
  Recipe recipe;
};

Task make_task(const Sweep& sweep, const SweepPoint& point, int64_t seed, bool final,
               const std::string& directory, const SweepOptions& options) {
  Value settings = sweep.common;
  apply_overrides(settings, point.settings);
  if (final) apply_overrides(settings, sweep.final_settings);
  std::vector<std::string> overrides = overrides_of(settings);
  std::vector<std::string> origins(overrides.size(), text("the sweep's settings of ", point.name));
  origins.insert(origins.end(), options.origins.begin(), options.origins.end());
  const auto add = [&](const std::vector<std::string>& asked) {
    overrides.insert(overrides.end(), asked.begin(), asked.end());
  };
  add(options.settings);
  if (final) add(options.final_settings);
  for (const std::string& setting : overrides)
    for (const char* own : {"train.seed", "train.output"})
      if (trim(setting.substr(0, setting.find('='))) == own)
        fail_usage("a sweep sets ", own, " itself: give seeds, and --output");
  Task task{point.name,
            text(directory, final ? "/final/" : "/", folder_name(point.name), "/seed-", seed),
            seed,
            final,
            {}};
  overrides.push_back(text("train.seed=", seed));
  overrides.push_back("train.output=" + toml_text(Value(task.folder)));
  task.recipe = load_recipe(sweep.recipes, overrides, origins);
  return task;
}

// Hashes the settings that affect the result, except the class count, which a recipe with "auto" has only
// after the run.
std::string hash_of(Recipe recipe) {
  recipe.model.settings.set("classes", 0);
  return recipe_hash(recipe);
}

Value value_of(const SweepRun& run, const Recipe& recipe) {
  Value out;
  out.set("point", run.point);
  out.set("metric", run.metric);
  out.set("value", run.value);
  out.set("larger_is_better", run.larger_is_better);
  if (run.train_loss) out.set("train_loss", *run.train_loss);
  if (run.test_loss) out.set("test_loss", *run.test_loss);
  out.set("parameters", run.parameters);
  out.set("images_per_second", run.images_per_second);
  out.set("seconds", run.seconds);
  out.set("recipe_hash", hash_of(recipe));
  return out;
}

// Reads the result of an earlier sweep if its recipe was the same.
bool read_result(const Task& task, SweepRun& run) {
  const std::string path = task.folder + "/" + kResult;
  if (!file_exists(path)) return false;
  const Value stored = parse_json_value(read_text(path), "'" + path + "'");
  const auto at = [&](const char* key) -> const Value& {
    const Value* value = stored.find(key);
    if (!value) fail("'", path, "': no '", key, "'");
    return *value;
  };
  if (at("recipe_hash") != Value(hash_of(task.recipe)))
    fail_usage("'", task.folder, "' holds a run of another recipe: choose another --output");
  run.metric = at("metric").as_string();
  run.value = at("value").as_double();
  const auto maybe = [&](const char* key) {  // older results have no losses
    const Value* value = stored.find(key);
    return value && value->is_number() ? std::optional(value->as_double()) : std::nullopt;
  };
  const Value* larger = stored.find("larger_is_better");  // older results lack it: true
  run.larger_is_better = !larger || !larger->is_bool() || larger->as_bool();
  run.train_loss = maybe("train_loss");
  run.test_loss = maybe("test_loss");
  run.parameters = at("parameters").as_int();
  run.images_per_second = at("images_per_second").as_double();
  run.seconds = at("seconds").as_double();
  return true;
}

// Returns all runs except the final ones. Reads stored results now, so that a folder with other runs is
// reported first. Also checks the final runs of every point, unless all points are done and the final runs
// come next.
std::vector<Task> make_tasks(const Sweep& sweep, const std::string& directory, const SweepOptions& options) {
  if (!sweep.has_final && !options.final_settings.empty())
    fail_usage("settings for the last runs (", options.final_settings.front(),
               ") but the sweep has no [final]");
  std::vector<Task> tasks;
  bool all_done = true;
  SweepRun stored;
  for (const SweepPoint& point : sweep.points)
    for (const int64_t seed : sweep.seeds) {
      tasks.push_back(make_task(sweep, point, seed, false, directory, options));
      all_done = read_result(tasks.back(), stored) && all_done;
    }
  if (all_done) return tasks;
  for (const SweepPoint& point : sweep.points)
    for (const int64_t seed : sweep.final_seeds)
      read_result(make_task(sweep, point, seed, true, directory, options), stored);
  return tasks;
}

std::optional<double> last_train_loss(const std::vector<HistoryPoint>& history) {
  for (const char* kind : {"epoch", "train"})
    for (auto point = history.rbegin(); point != history.rend(); ++point)
      for (const auto& [name, value] : point->values)
        if (point->kind == kind && name == "loss") return value;
  return std::nullopt;
}

void train_one(const Task& task, const SweepOptions& options, SweepRun& run) {
  try {
    const RunSummary summary =
        run_training(task.recipe, {.resume = Resume::automatic, .observers = options.observers});
    run.metric = summary.main_metric.name;
    run.larger_is_better = summary.main_metric.larger_is_better;
    run.value = summary.final.metric(run.metric);
    if (std::isnan(run.value))
      fail(run.metric, " has no value",
           summary.final.notes.empty() ? "" : ": " + summary.final.notes.front());
    run.train_loss = last_train_loss(summary.history);
    for (const tasks::Metric& metric : summary.final.metrics)
      if (metric.info.name == "loss") run.test_loss = metric.value;
    run.parameters = summary.plan.parameters;
    run.images_per_second = summary.images_per_second;
    run.seconds = summary.seconds;
    write_text_atomic(task.folder + "/" + kResult, json_text(value_of(run, task.recipe), 1) + "\n");
  } catch (const Error& error) {
    if (error.kind == ErrorKind::interrupted) throw;
    run.failure = error.what();
  } catch (const std::exception& error) {  // exceptions of libraries, such as out of memory
    const std::string message = error.what();
    run.failure = message.substr(0, message.find('\n'));
  }
}

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

void write_results(const std::string& directory, const std::vector<SweepRun>& runs) {
  const auto number = [](const std::optional<double>& value) { return value ? shortest(*value) : ""; };
  std::string csv =
      "point,final,seed,metric,value,train_loss,test_loss,parameters,images_per_second,seconds,failure\n";
  for (const SweepRun& run : runs)
    csv += text(quoted(run.point), ",", run.final ? 1 : 0, ",", run.seed, ",", run.metric, ",",
                run.failure.empty() ? shortest(run.value) : "", ",", number(run.train_loss), ",",
                number(run.test_loss), ",", run.parameters, ",", fixed(run.images_per_second, 1), ",",
                fixed(run.seconds, 1), ",", quoted(run.failure), "\n");
  make_directories(directory);
  write_text_atomic(directory + "/results.csv", csv);
}

}  // namespace

std::vector<std::string> overrides_of(const Value& settings) {
  std::vector<std::pair<std::string, const Value*>> leaves;
  leaves_of(settings, "", leaves);
  std::vector<std::string> overrides;
  for (const auto& [key, value] : leaves) overrides.push_back(key + "=" + toml_text(*value));
  return overrides;
}

Sweep read_sweep(const std::string& path, const std::vector<std::string>& recipes) {
  try {
    const SweepConfig config = read_config<SweepConfig>(read_based(path));
    check_table(config.set, "set"), check_table(config.final, "final"), check_table(config.sets, "sets");
    Sweep sweep;
    sweep.groups = groups_of(config.sets);
    sweep.recipes = recipes_of(config.recipe, path);
    sweep.recipes.insert(sweep.recipes.end(), recipes.begin(), recipes.end());
    sweep.common = config.set;
    sweep.seeds = config.seeds;
    check_seeds(sweep.seeds, "seeds");
    const bool gridded = !config.grid.is_table() || !config.grid.as_table().empty();
    if (gridded == !config.points.empty()) fail_usage("give [grid] or [[points]], one of them");
    if (gridded) sweep.points = combinations(config.grid);
    std::set<std::string> names;
    for (const PointConfig& point : config.points) {
      if (point.name.empty() || point.name == "final" || point.name == "." || point.name == "..")
        fail_usage("a point is called '", point.name,
                   "': its name is that of its folder, not 'final', '.' or '..'");
      check_table(point.set, "points.set");
      sweep.points.push_back({point.name, point.set});
    }
    for (const SweepPoint& point : sweep.points)
      if (!names.insert(folder_name(point.name)).second)
        fail_usage("two points are called '", point.name, "'");
    if (config.final.as_table().empty()) return sweep;
    const auto last = read_config<FinalConfig>(config.final, "final");
    check_table(last.set, "final.set");
    sweep.has_final = true;
    sweep.final_settings = last.set;
    sweep.final_seeds = last.seeds.empty() ? sweep.seeds : last.seeds;
    check_seeds(sweep.final_seeds, "final.seeds");
    return sweep;
  } catch (const Error& error) {
    throw Error(error.kind, text("sweep ", path, ": ", error.what()));
  }
}

namespace {

double mean_of(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  return mean;
}

std::optional<double> mean_of_known(const std::vector<const SweepRun*>& runs,
                                    std::optional<double> SweepRun::*loss) {
  std::vector<double> known;
  for (const SweepRun* run : runs)
    if (run->*loss) known.push_back(*(run->*loss));
  return known.empty() ? std::nullopt : std::optional(mean_of(known));
}

// Summarises the finished runs of a point.
void summarise(const std::vector<const SweepRun*>& runs, SweepRow& row) {
  std::vector<double> values;
  for (const SweepRun* run : runs) values.push_back(run->value);
  row.mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - row.mean) * (value - row.mean);
  const auto count = static_cast<double>(values.size());
  row.deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  row.train_loss = mean_of_known(runs, &SweepRun::train_loss);
  row.test_loss = mean_of_known(runs, &SweepRun::test_loss);
}

}  // namespace

std::vector<SweepRow> tabulate(const std::vector<SweepRun>& runs) {
  std::vector<SweepRow> rows;
  std::vector<std::vector<const SweepRun*>> done;
  for (const SweepRun& run : runs) {
    size_t i = 0;
    while (i < rows.size() && (rows[i].point != run.point || rows[i].final != run.final)) ++i;
    if (i == rows.size()) {
      rows.push_back({.point = run.point, .final = run.final});
      done.emplace_back();
    }
    ++(run.failure.empty() ? rows[i].done : rows[i].failed);
    if (run.failure.empty()) done[i].push_back(&run), rows[i].larger_is_better = run.larger_is_better;
  }
  for (size_t i = 0; i < rows.size(); ++i) summarise(done[i], rows[i]);
  return rows;
}

const SweepRow* best_of(const std::vector<SweepRow>& rows) {
  const SweepRow* best = nullptr;
  const auto rank = [](const SweepRow& row) {
    return std::pair(row.failed == 0, row.larger_is_better ? row.mean : -row.mean);
  };
  for (const SweepRow& row : rows)
    if (row.done > 0 && (!best || rank(row) > rank(*best))) best = &row;
  return best;
}

void check_sweep(const Sweep& sweep, const std::string& directory, const SweepOptions& options) {
  make_tasks(sweep, directory, options);  // rethrows the errors of a run
}

std::vector<SweepRun> run_sweep(const Sweep& sweep, const std::string& directory,
                                const SweepOptions& options) {
  const std::vector<Task> tasks = make_tasks(sweep, directory, options);
  const auto count = static_cast<int64_t>(tasks.size() + sweep.final_seeds.size());
  std::vector<SweepRun> runs;
  const auto make = [&](const Task& task) {
    SweepRun run{.point = task.point, .seed = task.seed, .final = task.final, .failure = "", .metric = ""};
    if (!read_result(task, run)) {
      if (options.starting)
        options.starting(task.final ? "final: " + task.point : task.point, task.seed,
                         static_cast<int64_t>(runs.size()) + 1, count);
      train_one(task, options, run);
    }
    runs.push_back(run);
    write_results(directory, runs);
  };
  for (const Task& task : tasks) make(task);
  if (!sweep.has_final) return runs;
  const auto rows = tabulate(runs);
  const SweepRow* best = best_of(rows);
  if (!best) fail("every run of the sweep failed; the first: ", runs.front().failure);
  const auto chosen = std::find_if(sweep.points.begin(), sweep.points.end(),
                                   [&](const SweepPoint& point) { return point.name == best->point; });
  for (const int64_t seed : sweep.final_seeds)
    make(make_task(sweep, *chosen, seed, true, directory, options));
  return runs;
}

}  // namespace tessera::train
