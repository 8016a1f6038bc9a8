// The finished runs OUTPUT/MODEL/seed-N as a Markdown table, a row a model, and OUTPUT/accuracy.svg with a
// curve a model, of its first seed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "io/file.h"
#include "io/weight_file.h"
#include "models/model.h"
#include "report/charts.h"
#include "train/open_model.h"
#include "train/run_directory.h"

namespace {

using namespace tessera;
namespace fs = std::filesystem;

struct Row {
  std::string model;
  int64_t parameters = 0, epochs = 0;
  std::vector<double> top1, seconds, images_per_second;
};

double value_of(const train::HistoryPoint& point, const std::string& name) {
  for (const auto& [key, value] : point.values)
    if (key == name) return value;
  fail("metrics.jsonl: a line of kind ", point.kind, " has no '", name, "'");
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += (value - mean(values)) * (value - mean(values));
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::vector<std::string> folders_of(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Adds a run to its model's row and gives its curve.
report::Curve read_run(const std::string& run, Row& row) {
  report::Curve curve;
  std::vector<double> speeds;
  double seconds = 0;
  for (const train::HistoryPoint& point : train::read_history(run)) {
    if (point.kind == "train") speeds.push_back(value_of(point, "images_per_second"));
    if (point.kind != "eval") continue;
    curve.points.push_back({point.epoch, value_of(point, "top1")});
    seconds = value_of(point, "seconds");
  }
  check(!curve.points.empty() && !speeds.empty(), run, ": no evaluation in metrics.jsonl");
  row.epochs = std::llround(curve.points.back().x);
  row.top1.push_back(curve.points.back().y);
  row.seconds.push_back(seconds);
  row.images_per_second.push_back(mean(speeds));
  return curve;
}

void print(std::vector<Row>& rows) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return mean(a.top1) > mean(b.top1); });
  std::cout << "| model | parameters | epochs | time | images/s | top-1 |\n|---|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    std::string top1 = fixed(100 * mean(row.top1), 1) + " %";
    if (row.top1.size() > 1)
      top1 += text(" +- ", fixed(100 * deviation(row.top1), 1), " over ", row.top1.size(), " seeds");
    std::cout << "| " << row.model << " | " << human_count(static_cast<double>(row.parameters)) << " | "
              << row.epochs << " | " << human_duration(mean(row.seconds)) << " | "
              << fixed(mean(row.images_per_second), 0) << " | " << top1 << " |\n";
  }
}

void run(const std::string& output) {
  std::vector<Row> rows;
  std::vector<report::Curve> curves;
  for (const std::string& model : folders_of(output)) {
    Row row;
    row.model = model;
    for (const std::string& seed : folders_of(output + "/" + model)) {
      const std::string path = text(output, "/", model, "/", seed);
      const std::string weights = path + "/model.safetensors";
      if (!fs::exists(weights)) continue;  // still running
      row.parameters =
          models::count_parameters(*models::sketch_model(train::describe_weights(WeightFile(weights)).model));
      report::Curve curve = read_run(path, row);
      if (row.top1.size() == 1) {
        curve.name = model;
        curves.push_back(std::move(curve));
      }
    }
    if (!row.top1.empty()) rows.push_back(std::move(row));
  }
  check(!rows.empty(), output, ": holds no finished run MODEL/seed-N");
  print(rows);
  write_text_atomic(output + "/accuracy.svg",
                    report::line_chart(curves, {.title = "Held-out accuracy on CIFAR-10",
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
  return 1;
}
