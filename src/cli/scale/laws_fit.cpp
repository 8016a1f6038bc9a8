// `tessera laws fit`: scaling laws of runs, sweeps or a table, and the best size for a budget.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "cli/scale/reports.h"
#include "core/error.h"
#include "core/text.h"
#include "laws/points.h"

namespace tessera::cli {
namespace {

struct LawsFitOptions {
  std::vector<std::string> paths;
  std::string budgets, loss = "loss";
  int64_t resamples = 100, held_out = 0;
  bool without_embeddings = false, repeated = false;
  AnalysisOutput output;

  template <class V>
  void visit(V& v) {
    v("paths", paths, {.argument = "PATHS", .required = true},
      "directories of runs or sweeps, or CSV files with parameters, loss, samples or training_flop");
    v("budget", budgets, "FLOP to divide between size and samples: 1e18,1e21");
    v("loss", loss, "metric of the runs' evaluations");
    v("resamples", resamples, between(10, 10000), "bootstrap fits for the intervals");
    v("held_out", held_out, between(0, 1000), "most expensive points to predict instead of fitting them");
    v("without_embeddings", without_embeddings, "count parameters without embeddings");
    v("repeated", repeated, "keep runs that saw samples more than once");
    v("output", output, "");
  }
};

std::vector<double> parse_budgets(const std::string& list) {
  std::vector<double> budgets;
  if (list.empty()) return budgets;
  for (const std::string& part : split(list, ',')) {
    const auto value = parse_double(trim(part));
    if (!value || !std::isfinite(*value) || *value <= 0)
      fail_usage("--budget: '", printable(part, 40), "' is no positive number of FLOP, as in 1e18,1e21");
    budgets.push_back(*value);
  }
  return budgets;
}

laws::Points read(const LawsFitOptions& options) {
  laws::Points all;
  std::vector<std::string> directories;
  for (const std::string& path : options.paths) {
    if (std::filesystem::is_directory(path)) {
      directories.push_back(path);
      continue;
    }
    laws::Points own = laws::read_points(path);
    all.points.insert(all.points.end(), own.points.begin(), own.points.end());
  }
  if (directories.empty()) return all;
  laws::Points runs =
      laws::read_runs(directories, {.loss = options.loss, .without_embeddings = options.without_embeddings});
  all.points.insert(all.points.end(), runs.points.begin(), runs.points.end());
  all.curves = std::move(runs.curves);
  all.left_out = std::move(runs.left_out);
  return all;
}

// Repeated samples teach less, so such runs are left out if enough others remain.
std::string part_repeated(laws::Points& points, bool keep) {
  const auto repeats = [](const laws::Point& point) { return point.repeats(); };
  const auto count = std::count_if(points.points.begin(), points.points.end(), repeats);
  if (count == 0) return "";
  if (keep || count == std::ssize(points.points))
    return text(count, " of ", points.points.size(),
                " points saw samples more than once; the laws count each time");
  for (const laws::Point& point : points.points)
    if (point.repeats())
      points.left_out.push_back(point.name + ": saw samples more than once (--repeated keeps it)");
  std::erase_if(points.points, repeats);
  return "";
}

// Removes and returns the `count` points with the most compute, the most expensive first.
std::vector<laws::Point> hold_out(std::vector<laws::Point>& points, int64_t count) {
  std::stable_sort(points.begin(), points.end(),
                   [](const laws::Point& a, const laws::Point& b) { return a.flop > b.flop; });
  const auto end = points.begin() + std::min<int64_t>(count, std::ssize(points));
  std::vector<laws::Point> held(points.begin(), end);
  points.erase(points.begin(), end);
  return held;
}

void fit(const LawsFitOptions& options) {
  const std::vector<double> budgets = parse_budgets(options.budgets);
  AnalysisWriter writer(options.output);
  laws::Points points = read(options);
  const std::string repeated = part_repeated(points, options.repeated);
  for (const std::string& line : points.left_out) std::cerr << "tessera: left out, " << line << "\n";
  std::vector<laws::Point> held_out;
  if (options.held_out > 0) held_out = hold_out(points.points, options.held_out);
  laws::check_points(points.points, join(options.paths, ", "));
  LawsFindings findings = find_laws(points, held_out, budgets, static_cast<int>(options.resamples));
  if (!repeated.empty()) findings.warnings.push_back(repeated);
  for (const std::string& line : findings.warnings) std::cerr << "tessera: " << line << "\n";
  findings.out.json["left_out"] = points.left_out;
  findings.out.json["warnings"] = findings.warnings;
  writer.write(findings.out);
}

}  // namespace

void add_laws_fit(Arguments& command, Action& action) { action = with_options<LawsFitOptions>(command, fit); }

}  // namespace tessera::cli
