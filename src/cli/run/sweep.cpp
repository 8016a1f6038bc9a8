// `tessera sweep FILE RECIPE...`: trains a recipe with different settings and prints one table; with --sets
// once for each of several data sets.
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/config.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "parallel/world.h"
#include "train/sweep_sets.h"

namespace tessera::cli {
namespace {

struct SweepOptions {
  std::string file, output, data, sets, device, precision;
  std::vector<std::string> recipes, settings, final_settings;
  std::optional<int64_t> threads;
  bool dry_run = false, json = false;

  template <class V>
  void visit(V& v) {
    v("file", file, {.argument = "FILE", .required = true},
      "TOML file with a recipe and a [grid] or [[points]]");
    v("recipe", recipes, {.argument = "RECIPE"},
      "recipe files that override the sweep's recipe, such as a scale");
    v("output", output, {.names = "-o", .writes = Writes::file}, "folder for the runs and results.csv");
    v("set", settings, "override keys of every run: --set train.epochs=3");
    v("final_set", final_settings, "override keys of the final runs, of the best point");
    v("data", data, {.sets = "data.path"}, "the images (data.path)");
    v("sets", sets, "folder of the data sets in [sets]: the sweep runs once for each");
    v("device", device, {.sets = "train.device"}, "cpu, cuda or auto (train.device)");
    v("precision", precision,
      {.choices = tessera::names_of<train::RunPrecision>(), .sets = "train.precision"},
      "arithmetic of the run (train.precision)");
    v("threads", threads, {.range = between(0, 1024), .sets = "train.threads"},
      "compute threads, 0 = OMP_NUM_THREADS or all cores (train.threads)");
    v("dry_run", dry_run, "list the runs");
    v("json", json, "the table as JSON");
  }
};

void print_sets(const train::Sweep& sweep, bool json) {
  const auto runs = static_cast<int64_t>(sweep.points.size() * sweep.seeds.size()),
             last = static_cast<int64_t>(sweep.final_seeds.size());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const train::SetGroup& group : sweep.groups)
    for (const std::string& set : group.sets) {
      list.push_back({{"set", set}, {"group", group.name}, {"runs", runs}, {"final_runs", last}});
      if (!json) std::cout << set << "  " << group.name << "  runs " << runs << "  final " << last << "\n";
    }
  if (json) std::cout << json_text(list) << "\n";
}

void print_points(const train::Sweep& sweep, bool json) {
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const train::SweepPoint& point : sweep.points)
      for (const int64_t seed : sweep.seeds)
        list.push_back({{"point", point.name}, {"final", false}, {"seed", seed}});
    for (const int64_t seed : sweep.final_seeds)
      list.push_back({{"point", nullptr}, {"final", true}, {"seed", seed}});
    std::cout << json_text(list) << "\n";
    return;
  }
  for (const train::SweepPoint& point : sweep.points)
    for (const int64_t seed : sweep.seeds) std::cout << point.name << "  seed " << seed << "\n";
  for (const int64_t seed : sweep.final_seeds) std::cout << "final: the best point  seed " << seed << "\n";
}

// The metric of the task; a failed run has none.
std::string metric_of(const std::vector<train::SweepRun>& runs) {
  for (const train::SweepRun& run : runs)
    if (!run.metric.empty()) return run.metric;
  return "";
}

void print_table(const std::vector<train::SweepRun>& runs) {
  const auto rows = train::tabulate(runs);
  size_t width = 5;
  for (const train::SweepRow& row : rows) width = std::max(width, row.point.size() + (row.final ? 7 : 0));
  const auto column = [](const std::string& content, size_t size) {
    return std::string(size - std::min(size, content.size()), ' ') + content;
  };
  std::cout << "point" << std::string(width - 5, ' ') << column("runs", 6) << column(metric_of(runs), 10)
            << column("+-", 10) << column("train loss", 12) << column("test loss", 11) << column("failed", 8)
            << "\n";
  for (const train::SweepRow& row : rows) {
    const std::string name = row.final ? "final: " + row.point : row.point;
    std::cout << name << std::string(width - name.size(), ' ') << column(text(row.done), 6)
              << column(row.done > 0 ? fixed(row.mean, 4) : "", 10)
              << column(row.done > 1 ? fixed(row.deviation, 4) : "", 10)
              << column(row.train_loss ? fixed(*row.train_loss, 4) : "", 12)
              << column(row.test_loss ? fixed(*row.test_loss, 4) : "", 11)
              << column(row.failed > 0 ? text(row.failed) : "", 8) << "\n";
  }
}

std::string padded(const std::string& content, size_t size) {
  return content + std::string(size - std::min(size, content.size()), ' ');
}

void print_set_table(const std::vector<train::SetResult>& results) {
  size_t width = 9, group_width = 5;
  for (const train::SetResult& result : results) {
    width = std::max(width, result.set.size());
    group_width = std::max(group_width, result.group.size());
  }
  const auto number = [](bool known, double value) { return padded(known ? fixed(value, 4) : "", 8); };
  std::cout << padded("set", width) << "  " << padded("group", group_width) << "  mean    +-      point\n";
  for (const train::SetResult& result : results)
    std::cout << padded(result.set, width) << "  " << padded(result.group, group_width) << "  "
              << number(result.row.done > 0, result.row.mean)
              << number(result.row.done > 1, result.row.deviation) << result.row.point << "\n";
  for (const train::GroupMean& group : train::group_means(results))
    std::cout << padded(text("mean of ", group.sets), width) << "  " << padded(group.name, group_width)
              << "  " << (group.complete ? fixed(group.mean, 4) : "") << "\n";
}

void print_set_json(const std::vector<train::SetResult>& results) {
  const auto number = [](bool known, double value) {
    return known ? nlohmann::ordered_json(value) : nullptr;
  };
  nlohmann::ordered_json out = {{"sets", nlohmann::ordered_json::array()},
                                {"groups", nlohmann::ordered_json::array()}};
  for (const train::SetResult& result : results)
    out["sets"].push_back({{"set", result.set},
                           {"group", result.group},
                           {"point", result.row.point},
                           {"mean", number(result.row.done > 0, result.row.mean)},
                           {"deviation", number(result.row.done > 0, result.row.deviation)},
                           {"runs", result.row.done},
                           {"failed", result.row.failed}});
  for (const train::GroupMean& group : train::group_means(results))
    out["groups"].push_back(
        {{"group", group.name}, {"sets", group.sets}, {"mean", number(group.complete, group.mean)}});
  std::cout << json_text(out) << "\n";
}

// Prints notable events of a run: replaced images, skipped steps, ignored checkpoints.
class Notes : public train::Observer {
  void note(const std::string& line) override { print(one_line(line)); }

  void started(const train::RunPlan& plan, int64_t first_step) override {
    ProgressLine::Options options;
    options.label = "  ";
    options.total = plan.steps;
    options.start = first_step;
    bar_ = std::make_unique<ProgressLine>(std::cerr, options);
  }
  void progressed(const train::StepProgress& at) override {
    if (!bar_) return;
    std::vector<std::pair<std::string, std::string>> fields = {{"loss", fixed(at.loss, 3)}};
    for (const tasks::Metric& metric : at.metrics) fields.emplace_back(metric.info.name, value_text(metric));
    fields.emplace_back("images/s", fixed(at.images_per_second, 0));
    bar_->update(at.step, fields);
  }
  void evaluated(const train::EvaluationReport& report) override {
    print(text("  epoch ", report.epoch, "  validation:", metrics_text(report.metrics)));
  }

 public:
  // Called before anything else is written, and at the end of a run.
  void finish() {
    if (bar_) bar_->finish();
    bar_.reset();
  }

 private:
  void print(const std::string& line) {
    if (bar_)
      bar_->print(line);
    else
      std::cerr << line << "\n";
  }
  std::unique_ptr<ProgressLine> bar_;
};

void print_json(const std::vector<train::SweepRun>& runs) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nullptr;
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const train::SweepRow& row : train::tabulate(runs))
    list.push_back({{"point", row.point},
                    {"final", row.final},
                    {"runs", row.done},
                    {"failed", row.failed},
                    {"metric", metric_of(runs)},
                    {"mean", row.done > 0 ? nlohmann::ordered_json(row.mean) : nullptr},
                    {"deviation", row.done > 0 ? nlohmann::ordered_json(row.deviation) : nullptr},
                    {"train_loss", number(row.train_loss)},
                    {"test_loss", number(row.test_loss)}});
  std::cout << json_text(list) << "\n";
}

train::SweepOptions sweep_options(const SweepOptions& options, const Given& given) {
  train::SweepOptions how;
  how.settings = options.settings;
  how.final_settings = options.final_settings;
  how.origins.resize(how.settings.size());
  given.add_recipe_settings(how.settings, how.origins);
  return how;
}

void run_sets(const SweepOptions& options, const train::Sweep& sweep, const train::SweepOptions& how) {
  const auto starting = [](const std::string& set, int64_t number, int64_t count) {
    std::cerr << "set " << number << " of " << count << "  " << set << std::endl;
  };
  const auto results = train::run_sets(sweep, options.sets, options.output, how, starting);
  options.json ? print_set_json(results) : print_set_table(results);
  std::cout.flush();
  int64_t failed = 0;
  for (const train::SetResult& result : results) {
    failed += result.row.failed > 0 || !result.failure.empty();
    if (!result.failure.empty())
      std::cerr << "failed: " << one_line(result.set) << ": " << one_line(result.failure) << "\n";
  }
  if (failed > 0) fail("runs failed in ", failed, " of ", results.size(), " sets");
}

// Prints the runs that a sweep would make, after it has checked them.
void check_only(const SweepOptions& options, const train::Sweep& sweep, const train::SweepOptions& how) {
  if (!options.sets.empty()) {
    train::check_sets(sweep, options.sets, options.output, how);
    print_sets(sweep, options.json);
  } else {
    train::check_sweep(sweep, options.output, how);
    print_points(sweep, options.json);
  }
}

// Prints the results. Throws Error if runs failed.
void print_results(const std::vector<train::SweepRun>& runs, bool json) {
  json ? print_json(runs) : print_table(runs);
  std::cout.flush();
  int64_t failed = 0;
  for (const train::SweepRun& one : runs) {
    if (one.failure.empty()) continue;
    ++failed;
    std::cerr << "failed: " << one.point << " seed " << one.seed << ": " << one_line(one.failure) << "\n";
  }
  if (failed > 0) fail(failed, " of ", runs.size(), " runs failed");
}

void run(const SweepOptions& options, const Given& given) {
  if (!options.sets.empty() && !options.data.empty())
    fail_usage("tessera sweep: --data and --sets both name the images: give one");
  const train::Sweep sweep = train::read_sweep(options.file, options.recipes);
  train::SweepOptions how = sweep_options(options, given);
  if (options.dry_run) return check_only(options, sweep, how);
  if (options.output.empty()) fail_usage("tessera sweep: --output is missing: where the runs are written");
  if (const auto world = parallel::World::join(); world->size() > 1)
    fail_usage("tessera sweep: ", world->size(),
               " processes were started, but a sweep makes its runs in one: start it without a launcher");
  Notes notes;
  how.starting = [&notes](const std::string& point, int64_t seed, int64_t number, int64_t count) {
    notes.finish();
    std::cerr << "run " << number << " of " << count << "  " << point << "  seed " << seed << std::endl;
  };
  how.observers = {&notes};
  if (!options.sets.empty()) return run_sets(options, sweep, how);
  const auto runs = train::run_sweep(sweep, options.output, how);
  notes.finish();
  print_results(runs, options.json);
}

}  // namespace

void add_sweep(Arguments& command, Action& action) { action = with_options<SweepOptions>(command, run); }

}  // namespace tessera::cli
