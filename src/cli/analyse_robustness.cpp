// `tessera analyse robustness`: errors under the corruptions of ImageNet-C or CIFAR-10-C, beside a baseline's (Hendrycks & Dietterich
// 2019): read from CORRUPTION/SEVERITY folders, or corrupted as they are read.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>

#include "cli/analysis_output.h"
#include "cli/command.h"
#include "cli/scored_set.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "data/corrupt_set.h"
#include "eval/robustness.h"
#include "io/file.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct AnalyseRobustnessOptions {
  AnalysisInput input;
  AnalysisOutput output;
  std::vector<std::string> weights;
  std::string corrupted, corruptions, baseline, parameters = "cifar", severities = "1,2,3,4,5";
  int64_t seed = 0;
};

std::vector<int> parse_severities(const std::string& list) {
  std::vector<int> out;
  for (const std::string& part : split(list, ',')) {
    const auto severity = parse_int(trim(part));
    if (!severity || *severity < 1 || *severity > data::kSeverities)
      fail_usage("--severity: '", part, "' is none, there are 1 to ", data::kSeverities, ", as in 1,3,5");
    out.push_back(static_cast<int>(*severity));
  }
  return out;
}

// "alexnet", or a file of lines CORRUPTION,ERROR with a line "clean,ERROR", as --csv of this command writes them.
eval::CorruptionBaseline read_baseline(const std::string& name) {
  if (name == "alexnet") return eval::alexnet_on_imagenet_c();
  eval::CorruptionBaseline baseline{name, {}, std::numeric_limits<double>::quiet_NaN()};
  int number = 0;
  for (const std::string& line : split(read_text(name, 1 << 20), '\n')) {
    ++number;
    if (trim(line).empty() || number == 1) continue;
    const std::vector<std::string> cells = split(line, ',');
    const auto error = cells.size() > 1 ? parse_double(trim(cells[1])) : std::nullopt;
    if (!error || *error < 0 || *error > 1)
      fail_usage(name, " line ", number, ": '", printable(line),
                 "' must read CORRUPTION,ERROR with an error of 0 to 1");
    if (cells[0] == "clean")
      baseline.clean = *error;
    else
      baseline.errors.push_back({cells[0], *error});
  }
  if (baseline.errors.empty()) fail_usage(name, ": holds no line CORRUPTION,ERROR");
  return baseline;
}

// The folders of a set in ImageNet-C's layout, in the benchmark's order; others behind.
std::vector<std::string> corruptions_in(const AnalyseRobustnessOptions& options) {
  std::vector<std::string> names;
  if (!options.corruptions.empty()) {
    for (const std::string& part : split(options.corruptions, ',')) names.emplace_back(trim(part));
    return names;
  }
  const auto known = data::corruption_names();
  if (options.corrupted.empty()) return {known.begin(), known.begin() + data::kBenchmarkCorruptions};
  for (const std::string& name : known)
    if (fs::is_directory(fs::path(options.corrupted) / name)) names.push_back(name);
  if (names.empty())
    fail_usage(options.corrupted, ": has no folder of a corruption (", known[0], ", ", known[1],
               ", …), each with one of every severity");
  return names;
}

// Fails where it is missing or empty.
std::string folder_of(const AnalyseRobustnessOptions& options, const std::string& corruption, int severity) {
  const fs::path folder = fs::path(options.corrupted) / corruption / std::to_string(severity);
  if (!fs::is_directory(folder) || fs::is_empty(folder))
    fail(folder.string(), fs::is_directory(folder) ? " is empty" : " is missing",
         ": every corruption must have the severities ", options.severities, "; --severity takes fewer");
  return folder.string();
}

std::shared_ptr<const data::Source> corrupted_set(const AnalyseRobustnessOptions& options,
                                                  const std::shared_ptr<const data::Source>& clean,
                                                  const std::string& corruption, int severity) {
  if (options.corrupted.empty())
    return std::make_shared<data::CorruptedSource>(
        clean, data::CorruptedSource::Options{.corruption = corruption,
                                              .severity = severity,
                                              .parameters = &data::corruption_parameters(options.parameters),
                                              .seed = static_cast<uint64_t>(options.seed)});
  const std::string folder = folder_of(options, corruption, severity);
  return data::open_source_with_problems({.path = folder, .val_path = folder}, data::Split::validation);
}

struct Measured {
  std::string name, file;
  double clean = std::numeric_limits<double>::quiet_NaN();
  std::vector<eval::CorruptionError> errors;     // means over the severities
  std::vector<std::vector<double>> by_severity;  // of each
};

double error_of(const ScoredSet& scored) {
  const std::vector<bool> hits = scored.hits();
  return static_cast<double>(std::count(hits.begin(), hits.end(), false)) / static_cast<double>(hits.size());
}

void analyse(const AnalyseRobustnessOptions& options) {
  const std::vector<int> severities = parse_severities(options.severities);
  const std::vector<std::string> corruptions = corruptions_in(options);
  for (const std::string& name : corruptions)
    for (const int severity : severities) {  // what is not there is said before the work
      data::imagenet_c_parameters().of(name, severity);
      if (!options.corrupted.empty()) folder_of(options, name, severity);
    }
  const bool relative_to_one = !options.baseline.empty();
  const auto baseline = relative_to_one ? read_baseline(options.baseline) : eval::CorruptionBaseline{};
  AnalysisWriter writer(options.output);
  const Interruptible stretch;
  std::vector<Measured> models;
  std::string set = options.corrupted;
  for (const std::string& weights : options.weights) {
    AnalysisInput input = options.input;
    input.weights = weights;
    const AnalysedModel model(input);
    const bool has_clean = options.corrupted.empty() || !options.input.data.empty();
    const auto clean = has_clean ? open_set(input, model) : nullptr;
    Measured measured{.name = model.info().model.name, .file = weights, .errors = {}, .by_severity = {}};
    if (clean) measured.clean = error_of(score_set(model, *clean, input.batch, input.count, "clean"));
    if (clean && options.corrupted.empty()) set = clean->describe();
    for (const std::string& corruption : corruptions) {
      std::vector<double> errors;
      for (const int severity : severities)
        errors.push_back(error_of(score_set(model, *corrupted_set(options, clean, corruption, severity),
                                            input.batch, input.count, text(corruption, " ", severity))));
      double mean = 0;
      for (const double error : errors) mean += error / static_cast<double>(errors.size());
      measured.errors.push_back({corruption, mean});
      measured.by_severity.push_back(std::move(errors));
    }
    models.push_back(std::move(measured));
  }

  AnalysisFindings out;
  out.title = models.size() == 1 ? "Robustness of " + models[0].name
                                 : text("Robustness of ", models.size(), " models");
  out.subtitle =
      text(set, ", ", counted(std::ssize(corruptions), "corruption"), ", severities ", options.severities);
  AnalysisSection errors{.heading = "Errors", .note = "Shares of wrong answers, mean over the severities."};
  errors.table = {.name = "errors", .columns = {{"corruption"}}};
  for (const Measured& model : models)
    errors.table.columns.push_back({models.size() > 1 ? model.file : "error", true});
  const auto row = [&](const std::string& name, const auto& value) {
    std::vector<std::string> cells = {name};
    for (const Measured& model : models) cells.push_back(fixed(value(model), 6));
    errors.table.rows.push_back(std::move(cells));
  };
  if (std::isfinite(models[0].clean)) row("clean", [](const Measured& m) { return m.clean; });
  for (size_t c = 0; c < corruptions.size(); ++c)
    row(corruptions[c], [&](const Measured& m) { return m.errors[c].error; });
  std::vector<report::Curve> curves;
  for (const Measured& model : models) {
    report::Curve curve{.name = model.file};
    for (size_t s = 0; s < severities.size(); ++s) {
      double mean = 0;
      for (const auto& of_corruption : model.by_severity)
        mean += of_corruption[s] / static_cast<double>(corruptions.size());
      curve.points.push_back({static_cast<double>(severities[s]), mean});
    }
    curves.push_back(std::move(curve));
  }
  errors.drawings = {line_drawing(
      curves, {.title = "Error by severity", .x_label = "severity", .y_label = "error", .percent = true})};
  auto json = Json::array();
  AnalysisSection means{.heading = "Mean corruption error"};
  means.note = relative_to_one ? "Each corruption's error is divided by that of " + baseline.name + "."
                               : "Without a baseline (--baseline), errors as they are.";
  means.table = {.name = "means", .columns = {{"model"}, {"mean error", true}}};
  if (relative_to_one)
    means.table.columns.insert(means.table.columns.end(), {{"mCE", true}, {"relative mCE", true}});
  for (const Measured& model : models) {
    const auto mce = relative_to_one ? eval::mean_corruption_error(model.errors, model.clean, baseline)
                                     : eval::MeanCorruptionError{};
    double mean = 0;
    for (const auto& error : model.errors) mean += error.error / static_cast<double>(model.errors.size());
    std::vector<std::string> cells = {model.file, fixed(mean, 4)};
    Json line = {
        {"weights", model.file}, {"model", model.name}, {"clean_error", model.clean}, {"mean_error", mean}};
    if (relative_to_one) {
      cells.push_back(fixed(mce.mce, 4));
      cells.push_back(std::isfinite(mce.relative_mce) ? fixed(mce.relative_mce, 4) : "");
      line["mce"] = mce.mce, line["relative_mce"] = mce.relative_mce;
    }
    for (size_t c = 0; c < corruptions.size(); ++c) line["errors"][corruptions[c]] = model.by_severity[c];
    means.table.rows.push_back(std::move(cells));
    json.push_back(std::move(line));
  }
  out.json = {{"data", set}, {"severities", severities}, {"baseline", baseline.name}, {"models", json}};
  out.sections = {std::move(errors), std::move(means)};
  writer.write(out);
}

}  // namespace

void add_analyse_robustness(Arguments& command, Action& action) {
  auto options = std::make_shared<AnalyseRobustnessOptions>();
  options->input.count = 0, options->input.batch = 64;
  add_set_options(command, options->input, options->weights);
  command.add("--corrupted", options->corrupted,
              "folder with CORRUPTION/SEVERITY, as `tessera data corrupt` or ImageNet-C have it (default: "
              "images of --data are "
              "corrupted as they are read)");
  command.add("--corruption", options->corruptions, "some as fog,frost (default: all there are)");
  command.add("--severity", options->severities, "several with commas").show_default();
  command.add("--parameters", options->parameters, "of images that are corrupted as they are read")
      .show_default()
      .one_of({"imagenet", "cifar"});
  command.add("--seed", options->seed, "of the same").show_default();
  command.add("--baseline", options->baseline,
              "alexnet (on ImageNet-C), or a file that --csv of this command wrote for another model");
  add_output_options(command, options->output);
  action = [options] { analyse(*options); };
}

}  // namespace tessera::cli
