// Prints the finished runs OUTPUT/MODEL/seed-N as a Markdown table, a row per model. Writes
// OUTPUT/accuracy.svg with a curve per model, for its first seed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/weight_file.h"
#include "models/base/model.h"
#include "open/open_task.h"
#include "report/charts.h"
#include "runs/run_directory.h"
#include "train/sweep.h"

namespace {

using namespace tessera;
namespace fs = std::filesystem;

// A model's figures from its first seed, in addition to its accuracy.
struct Model {
  std::string name;
  int64_t parameters = 0, epochs = 0;
  double seconds = 0, images_per_second = 0;
  report::Curve curve = {};
};

double value_of(const train::HistoryPoint& point, const std::string& name) {
  for (const auto& [key, value] : point.values)
    if (key == name) return value;
  fail("metrics.jsonl: a line of kind ", point.kind, " has no '", name, "'");
}

std::vector<std::string> folders_of(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Model read_run(const std::string& name, const std::string& run) {
  const WeightFile weights(run + "/model.safetensors");
  Model model{
      .name = name,
      .parameters = tasks::count_parameters(train::meta_task(train::describe_weights(weights))->parts()),
      .curve = {.name = name}};
  int64_t lines = 0;
  for (const train::HistoryPoint& point : train::read_history(run)) {
    if (point.kind == "train") {
      model.images_per_second += value_of(point, "images_per_second");
      ++lines;
    }
    if (point.kind != "eval") continue;
    model.curve.points.push_back({point.epoch, value_of(point, "top1")});
    model.seconds = value_of(point, "seconds");
  }
  check(!model.curve.points.empty() && lines > 0, run, ": no evaluation in metrics.jsonl");
  model.images_per_second /= static_cast<double>(lines);
  model.epochs = std::llround(model.curve.points.back().x);
  return model;
}

void print(const std::vector<Model>& models, std::vector<train::SweepRow> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.mean > b.mean; });
  std::cout << "| model | parameters | epochs | time | images/s | top-1 |\n|---|---|---|---|---|---|\n";
  for (const train::SweepRow& row : rows) {
    const auto model =
        std::find_if(models.begin(), models.end(), [&](const Model& m) { return m.name == row.point; });
    std::string top1 = fixed(100 * row.mean, 1) + " %";
    if (row.done > 1) top1 += text(" +- ", fixed(100 * row.deviation, 1), " over ", row.done, " seeds");
    std::cout << "| " << row.point << " | " << human_count(static_cast<double>(model->parameters)) << " | "
              << model->epochs << " | " << human_duration(model->seconds) << " | "
              << fixed(model->images_per_second, 0) << " | " << top1 << " |\n";
  }
}

void run(const std::string& output) {
  std::vector<Model> models;
  std::vector<report::Curve> curves;
  std::vector<train::SweepRun> runs;
  for (const std::string& name : folders_of(output))
    for (const std::string& seed : folders_of(output + "/" + name)) {
      const std::string path = text(output, "/", name, "/", seed);
      if (!fs::exists(path + "/model.safetensors")) continue;  // still running
      Model model = read_run(name, path);
      train::SweepRun done;
      done.point = name;
      done.value = model.curve.points.back().y;
      runs.push_back(done);
      if (!models.empty() && models.back().name == name) continue;
      curves.push_back(model.curve);
      models.push_back(std::move(model));
    }
  check(!runs.empty(), output, ": holds no finished run MODEL/seed-N");
  print(models, train::tabulate(runs));
  write_text_atomic(output + "/accuracy.svg",
                    report::line_chart(curves, {.title = "Validation accuracy on CIFAR-10",
                                                .x_label = "epoch",
                                                .y_label = "top-1",
                                                .width = 760,
                                                .height = 420,
                                                .percent = true}));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) fail_usage("usage: compare_runs OUTPUT");
  run(argv[1]);
  return 0;
} catch (const tessera::Error& error) {
  std::cerr << "compare_runs: " << error.what() << "\n";
  return error.kind == tessera::ErrorKind::usage ? 2 : 1;
} catch (const std::exception& error) {
  std::cerr << "compare_runs: " << error.what() << "\n";
  return 1;
}
