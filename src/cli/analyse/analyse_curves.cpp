// `tessera analyse curves RUN…`: losses and metrics of several runs in one chart, with the epoch at which a
// soft mask ends (Wang et al. 2024, Figures 3 and 6), and metrics over compute (Alkin et al. 2024, Figures 1
// and 3).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseCurvesOptions {
  std::vector<std::string> runs;
  AnalysisOutput output;

  template <class V>
  void visit(V& v) {
    v("runs", runs, {.argument = "RUNS", .required = true}, "run directories, or their metrics.jsonl");
    v("output", output, "");
  }
};

struct Measure {
  std::string kind, name;  // "eval", "top1"
  bool operator==(const Measure&) const = default;
};

using Curves = std::vector<std::pair<Measure, report::Curve>>;

struct Run {
  std::string name;
  Curves curves;           // over the epochs
  Curves over_compute;     // evaluations over the cumulative multiply-adds
  double mask_ends = NAN;  // epoch
};

// True for values that measure speed or count something, not quality.
bool is_bookkeeping(const std::string& key) {
  static const std::vector<std::string> names = {
      "kind", "step", "epoch", "seconds", "samples", "images_per_second", "training_macs"};
  return std::find(names.begin(), names.end(), key) != names.end();
}

// Returns the epoch at which the soft mask ends, if the run's recipe has one that ends.
double end_of_mask(const std::string& directory) {
  const std::string file = directory + "/recipe.toml";
  if (!file_exists(file)) return NAN;
  const Value recipe = parse_toml(read_text(file), file);
  const Value *share = recipe.find("model.soft_mask"), *cutoff = recipe.find("model.soft_mask_cutoff");
  const bool on = share && share->is_number() && share->as_double() > 0;
  return on && cutoff && cutoff->is_int() && cutoff->as_int() > 0 ? static_cast<double>(cutoff->as_int())
                                                                  : NAN;
}

void add_point(Curves& curves, const Measure& measure, const std::string& run, report::Point point) {
  auto found = std::find_if(curves.begin(), curves.end(), [&](const auto& c) { return c.first == measure; });
  if (found == curves.end()) found = curves.insert(found, {measure, {.name = run}});
  found->second.points.push_back(point);
}

Run read_run(const std::string& path) {
  const bool directory = std::filesystem::is_directory(path);
  const std::string file = directory ? path + "/metrics.jsonl" : path;
  if (!file_exists(file)) fail(path, ": no metrics.jsonl: give the directory of a run");
  Run run{.name = path, .curves = {}, .over_compute = {}};
  if (directory) run.mask_ends = end_of_mask(path);
  const auto lines = split(read_text(file, uint64_t{1} << 30), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trim(lines[i]).empty()) continue;
    Json line;
    try {
      line = parse_json<Json>(lines[i], text(file, " line ", i + 1));
    } catch (const Error&) {
      if (i + 1 == lines.size()) break;  // a truncated line: the run is still writing it
      throw;
    }
    if (!line.is_object() || !line.contains("epoch") || !line["epoch"].is_number()) continue;
    for (const auto& [key, value] : line.items()) {
      if (is_bookkeeping(key) || !value.is_number()) continue;
      const Measure measure{line.value("kind", ""), key};
      add_point(run.curves, measure, path, {line["epoch"].get<double>(), value.get<double>()});
      if (const auto macs = line.find("training_macs"); macs != line.end() && macs->is_number())
        add_point(run.over_compute, measure, path, {macs->get<double>() * 1e-12, value.get<double>()});
    }
  }
  if (run.curves.empty()) fail(path, ": nothing was measured yet");
  return run;
}

// Returns one drawing for each measure of an evaluation; none if the runs do not record their compute.
AnalysisSection compute_section(const std::vector<Run>& runs, const std::vector<Measure>& measures,
                                Json& json) {
  AnalysisSection section{
      .heading = "Over the compute of the training",
      .note = "Multiply-adds of all samples so far, forward and backward: what an evaluation had cost."};
  for (const Measure& measure : measures) {
    std::vector<report::Curve> curves;
    Json line = {{"kind", measure.kind}, {"name", measure.name}, {"runs", Json::array()}};
    for (const Run& run : runs)
      for (const auto& [own, curve] : run.over_compute)
        if (own == measure) {
          auto points = Json::array();
          for (const report::Point& point : curve.points) points.push_back({point.x, point.y});
          line["runs"].push_back({{"run", run.name}, {"tera_macs", points}});
          curves.push_back(curve);
        }
    if (curves.empty()) continue;
    section.drawings.push_back(line_drawing(
        curves,
        {.title = "validation " + measure.name, .x_label = "10^12 multiply-adds", .y_label = measure.name}));
    json.push_back(std::move(line));
  }
  return section;
}

// Adds the curves of one measure over the epochs, and its last values to the table.
void add_measure(const std::vector<Run>& runs, const Measure& measure, AnalysisSection& last,
                 AnalysisSection& charts, Json& json) {
  const std::string name = (measure.kind == "eval"    ? "validation "
                            : measure.kind == "epoch" ? "training "
                                                      : measure.kind + " ") +
                           measure.name;
  std::vector<report::Curve> curves;
  std::vector<std::string> cells = {name};
  double low = INFINITY, high = -INFINITY;
  Json line = {{"kind", measure.kind}, {"name", measure.name}, {"runs", Json::array()}};
  for (const Run& run : runs) {
    const auto found =
        std::find_if(run.curves.begin(), run.curves.end(), [&](const auto& c) { return c.first == measure; });
    cells.push_back(found == run.curves.end() ? "" : fixed(found->second.points.back().y, 4));
    if (found == run.curves.end()) continue;
    auto points = Json::array();
    for (const report::Point& point : found->second.points) {
      if (std::isfinite(point.y)) low = std::min(low, point.y), high = std::max(high, point.y);
      points.push_back({point.x, point.y});
    }
    line["runs"].push_back({{"run", run.name}, {"points", points}});
    curves.push_back(found->second);
  }
  for (const Run& run : runs)
    if (std::isfinite(run.mask_ends) && low <= high)
      curves.push_back({.name = "soft mask ends", .points = {{run.mask_ends, low}, {run.mask_ends, high}}});
  last.table.rows.push_back(std::move(cells));
  charts.drawings.push_back(
      line_drawing(curves, {.title = name, .x_label = "epoch", .y_label = measure.name}));
  json.push_back(std::move(line));
}

void analyse(const AnalyseCurvesOptions& options) {
  AnalysisWriter writer(options.output);
  std::vector<Run> runs;
  std::vector<Measure> measures;
  for (const std::string& path : options.runs) {
    runs.push_back(read_run(path));
    for (const auto& [measure, curve] : runs.back().curves)
      if (std::find(measures.begin(), measures.end(), measure) == measures.end()) measures.push_back(measure);
  }
  AnalysisFindings out;
  out.title = "Curves of " + counted(std::ssize(runs), "run");
  out.subtitle = join(options.runs, ", ");
  AnalysisSection last{.heading = "Last values"};
  last.table = {.name = "last", .columns = {{"measure"}}};
  for (const Run& run : runs) last.table.columns.push_back({run.name, true});
  AnalysisSection charts{.heading = "Over the epochs"};
  std::vector<std::string> masks;
  for (const Run& run : runs)
    if (std::isfinite(run.mask_ends)) masks.push_back(text(run.name, " in epoch ", run.mask_ends));
  if (!masks.empty()) charts.note = "Upright lines: the soft mask ends, of " + join(masks, "; ") + ".";
  auto json = Json::array(), over_compute = Json::array();
  for (const Measure& measure : measures) add_measure(runs, measure, last, charts, json);
  out.sections = {std::move(last), std::move(charts)};
  AnalysisSection compute = compute_section(runs, measures, over_compute);
  if (!compute.drawings.empty()) out.sections.push_back(std::move(compute));
  out.json = {{"measures", json}, {"over_compute", over_compute}};
  writer.write(out);
}

}  // namespace

void add_analyse_curves(Arguments& command, Action& action) {
  action = with_options<AnalyseCurvesOptions>(command, analyse);
}

}  // namespace tessera::cli
