// `tessera sweep FILE`: many runs of a recipe with different settings, as one table.
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "parallel/world.h"
#include "train/sweep.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string file, output, data, device;
  std::vector<std::string> settings, final_settings;
  int64_t threads = -1;
  bool dry_run = false, json = false;
};

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

// The task's, which a run that failed does not know.
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
            << column("+-", 10) << column("failed", 8) << "\n";
  for (const train::SweepRow& row : rows) {
    const std::string name = row.final ? "final: " + row.point : row.point;
    std::cout << name << std::string(width - name.size(), ' ') << column(text(row.done), 6)
              << column(row.done > 0 ? fixed(row.mean, 4) : "", 10)
              << column(row.done > 1 ? fixed(row.deviation, 4) : "", 10)
              << column(row.failed > 0 ? text(row.failed) : "", 8) << "\n";
  }
}

// What happens in a run that people should know: pictures replaced, steps skipped, checkpoints passed over.
class Notes : public train::Observer {
  void note(const std::string& line) override { std::cerr << line << "\n"; }
};

void print_json(const std::vector<train::SweepRun>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const train::SweepRow& row : train::tabulate(runs))
    list.push_back({{"point", row.point},
                    {"final", row.final},
                    {"runs", row.done},
                    {"failed", row.failed},
                    {"metric", metric_of(runs)},
                    {"mean", row.done > 0 ? nlohmann::ordered_json(row.mean) : nullptr},
                    {"deviation", row.done > 0 ? nlohmann::ordered_json(row.deviation) : nullptr}});
  std::cout << json_text(list) << "\n";
}

train::SweepOptions sweep_options(const Options& options) {
  train::SweepOptions how;
  how.settings = options.settings;
  how.final_settings = options.final_settings;
  if (!options.data.empty()) how.settings.push_back("data.path=" + toml_text(Value(options.data)));
  if (!options.device.empty()) how.settings.push_back("train.device=" + options.device);
  if (options.threads >= 0) how.settings.push_back(text("train.threads=", options.threads));
  return how;
}

void run(const Options& options) {
  const train::Sweep sweep = train::read_sweep(options.file);
  train::SweepOptions how = sweep_options(options);
  if (options.dry_run) {
    train::check_sweep(sweep, options.output, how);
    print_points(sweep, options.json);
    return;
  }
  if (options.output.empty()) fail_usage("tessera sweep: --output is missing: where the runs are written");
  if (const auto world = parallel::World::join(); world->size() > 1)
    fail_usage(
        "tessera sweep: ", world->size(),
        " processes were started, but a sweep makes its runs in one: start it without mpirun or srun -n");
  how.starting = [](const std::string& point, int64_t seed, int64_t number, int64_t count) {
    std::cerr << "run " << number << " of " << count << "  " << point << "  seed " << seed << std::endl;
  };
  Notes notes;
  how.observers = {&notes};
  const auto runs = train::run_sweep(sweep, options.output, how);
  options.json ? print_json(runs) : print_table(runs);
  std::cout.flush();
  int64_t failed = 0;
  for (const train::SweepRun& one : runs) {
    if (one.failure.empty()) continue;
    ++failed;
    std::cerr << "failed: " << one.point << " seed " << one.seed << ": " << one.failure << "\n";
  }
  if (failed > 0) fail(failed, " of ", runs.size(), " runs failed");
}

}  // namespace

void add_sweep(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command.add("FILE", options->file, "a TOML file with a recipe and a [grid] or [[points]]").required();
  command.add("-o,--output", options->output, "folder for the runs and results.csv");
  command.add("--set", options->settings, "lay a value over every run: --set train.epochs=3");
  command.add("--final-set", options->final_settings, "lay a value over the last runs, of the best point");
  command.add("--data", options->data, "where the pictures are (data.path)");
  command.add("--device", options->device, "cpu, cuda or auto (train.device)");
  command.add("--threads", options->threads, "compute threads, 0 = all cores (train.threads)").range(0, 1024);
  command.flag("--dry-run", options->dry_run, "list the runs");
  command.flag("--json", options->json, "the table as JSON");
  action = [options] { run(*options); };
}

}  // namespace tessera::cli
