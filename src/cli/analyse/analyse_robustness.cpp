// `tessera analyse robustness`: errors under the corruptions of ImageNet-C or CIFAR-10-C, relative to a
// baseline (Hendrycks & Dietterich 2019). Images are read from CORRUPTION/SEVERITY folders, or corrupted on
// reading.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/scored_set.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/tools/corrupt_set.h"
#include "eval/discrimination.h"
#include "eval/robustness.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kUnknown = std::numeric_limits<double>::quiet_NaN();

struct AnalyseRobustnessOptions {
  AnalysisInput input = {0, 64};
  AnalysisOutput output;
  std::vector<std::string> weights;
  std::string corrupted, corruptions, baseline, parameters, frost, severities = "1,2,3,4,5";
  int64_t seed = 0;

  template <class V>
  void visit(V& v) {
    input.visit_set(v, weights);
    visit_classes_in_order(v, input.classes_in_order);
    v("corrupted", corrupted,
      "folder with CORRUPTION/SEVERITY, of `tessera data corrupt` or ImageNet-C (default: images of --data "
      "are corrupted as they are read)");
    v("corruption", corruptions, "corruptions: fog,frost (default: all; with a baseline the benchmark's 15)");
    v("severity", severities, "severities, comma-separated");
    v("parameters", parameters, {.choices = {"imagenet", "cifar"}},
      "parameters for images corrupted as they are read (default: cifar for images of at most 64 pixels)");
    v("frost", frost,
      "folder of images of frost, for images corrupted as they are read (default: synthetic frost)");
    v("seed", seed, "seed of the corruptions");
    v("baseline", baseline, "alexnet (on ImageNet-C), or the --csv of this command for one other model");
    v("output", output, "");
  }
};

// Ascending, each once.
std::vector<int> severities_of(const AnalyseRobustnessOptions& options) {
  std::vector<int> out;
  for (const std::string& part : split(options.severities, ',')) {
    const auto severity = parse_int(trim(part));
    if (!severity || *severity < 1 || *severity > data::kSeverities)
      fail_usage("--severity: '", part, "' is none, there are 1 to ", data::kSeverities, ", as in 1,3,5");
    out.push_back(static_cast<int>(*severity));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Returns the given corruptions, or the folders of a set in ImageNet-C's layout: in the benchmark's order,
// extra ones last. mCE, which needs a baseline, covers the benchmark's corruptions only.
std::vector<std::string> corruptions_of(const AnalyseRobustnessOptions& options) {
  std::vector<std::string> names;
  if (!options.corruptions.empty()) {
    for (const std::string& part : split(options.corruptions, ','))
      if (std::find(names.begin(), names.end(), trim(part)) == names.end()) names.emplace_back(trim(part));
    return names;
  }
  const auto all = data::corruption_names(), benchmark = all.first(data::kBenchmarkCorruptions);
  if (options.corrupted.empty()) return {benchmark.begin(), benchmark.end()};
  for (const std::string& name : options.baseline.empty() ? all : benchmark)
    if (fs::is_directory(fs::path(options.corrupted) / name)) names.push_back(name);
  if (names.empty())
    fail_usage(options.corrupted, ": has no folder of a corruption",
               options.baseline.empty() ? "" : " of the benchmark", " (", all[0], ", ", all[1],
               ", …), each with one of every severity",
               options.baseline.empty() ? "" : "; --corruption names others");
  return names;
}

// The sets to measure: the clean one, if any, and each corruption at each severity.
class RobustnessSets {
 public:
  explicit RobustnessSets(const AnalyseRobustnessOptions& options)
      : options_(options), severities_(severities_of(options)), corruptions_(corruptions_of(options)) {
    if (reads_folders() && !(options.parameters.empty() && options.frost.empty()))
      fail_usage(options.parameters.empty() ? "--frost" : "--parameters",
                 " is of images that are corrupted as they are read, those of --corrupted are already");
    check_names();
    ours_ = reads_folders() && file_exists((fs::path(options.corrupted) / "corruptions.json").string());
  }

  const std::vector<int>& severities() const { return severities_; }
  const std::vector<std::string>& corruptions() const { return corruptions_; }
  const data::Source* clean() const { return clean_.get(); }

  // Runs before the first model is measured; without --data the clean set is that of the first model's run.
  void open(const AnalysedModel& model) {
    const AnalysisInput& input = options_.input;
    if (!reads_folders() || !input.data.empty()) clean_ = open_set(input, model);
    if (reads_folders()) return check_sizes();
    say_whose_set(input, options_.weights, *clean_);
    data::require_corruptible(*clean_, input.count);
    parameters_ = &data::parameters_for(options_.parameters, 0, *clean_);
    if (!options_.frost.empty()) frosts_ = data::read_frosts(options_.frost);
    if (draws_frost()) std::cerr << "tessera: " << data::kDrawnFrost << "\n";
  }

  std::shared_ptr<const data::Source> corrupted(const std::string& corruption, int severity) const {
    if (reads_folders()) {
      const std::string folder = folder_of(corruption, severity);
      return data::open_source_with_problems({.path = folder, .val_path = folder}, data::Split::validation);
    }
    return std::make_shared<data::CorruptedSource>(
        clean_, data::CorruptedSource::Options{.corruption = corruption,
                                               .severity = severity,
                                               .parameters = parameters_,
                                               .frosts = frosts_,
                                               .seed = static_cast<uint64_t>(options_.seed)});
  }

  // Relative errors need the same images. Shared names must agree; a note is printed if the sets share no
  // names.
  void require_same_images(const ScoredSet& clean, const ScoredSet& corrupted, bool first) const {
    if (!reads_folders()) return;
    std::vector<std::string> ours, theirs, both;
    for (const std::string& name : clean.names) ours.push_back(data::kept_stem(name));
    for (const std::string& name : corrupted.names)
      theirs.push_back(ours_ ? data::kept_stem_of_written(name) : data::kept_stem(name));
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(), std::back_inserter(both));
    const bool some = ours_ && options_.input.count > 0;  // of sets that may be in another order
    if (both.empty() && ours.size() == theirs.size() && !some) {
      if (first)
        std::cerr
            << "tessera: no image of --data has the name of one of --corrupted: whether they are the same "
               "is not known\n";
    } else if (both.size() != ours.size() || both.size() != theirs.size()) {
      fail_usage(corrupted.source, ": of its ", counted(corrupted.images(), "image"), " ", both.size(),
                 " by name are among the ", clean.images(), " of ", clean.source,
                 ", and errors relative to the clean one need the same images: ",
                 options_.input.count > 0 ? "measure all, without --images, or leave --data out"
                                          : "give the set that was corrupted, or leave --data out");
    }
  }

  bool reads_folders() const { return !options_.corrupted.empty(); }
  bool draws_frost() const {
    return !reads_folders() && !frosts_ &&
           std::find(corruptions_.begin(), corruptions_.end(), "frost") != corruptions_.end();
  }
  std::string parameters() const { return parameters_ ? parameters_->name : ""; }
  std::string describe() const {
    if (reads_folders()) return options_.corrupted;
    return text(clean_->describe(), ", parameters of ", data::published_name(*parameters_));
  }

 private:
  // Throws for missing inputs before any work.
  void check_names() const {
    for (const std::string& name : corruptions_)
      for (const int severity : severities_) {
        data::imagenet_c_parameters().of(name, severity);
        if (reads_folders()) folder_of(name, severity);
      }
  }

  // Throws unless all sets have the same number of images.
  void check_sizes() const {
    const data::Source* first = clean_.get();
    std::shared_ptr<const data::Source> kept;
    for (const std::string& name : corruptions_)
      for (const int severity : severities_) {
        const auto set = corrupted(name, severity);
        if (!first) kept = set, first = kept.get();
        if (set->size() != first->size())
          fail_usage(folder_of(name, severity), " has ", counted(set->size(), "image"), ", but ",
                     first->describe(), " has ", first->size(), ": ",
                     clean_ ? "--data must be the set that was corrupted, or be left out"
                            : "every corruption must be of the same images");
      }
  }

  // Fails if the folder is missing or empty.
  std::string folder_of(const std::string& corruption, int severity) const {
    const fs::path folder = fs::path(options_.corrupted) / corruption / std::to_string(severity);
    if (!fs::is_directory(folder) || fs::is_empty(folder))
      fail(folder.string(), fs::is_directory(folder) ? " is empty" : " is missing",
           ": every corruption must have the severities ", eval::severity_list(severities_, ","),
           "; --severity takes fewer");
    return folder.string();
  }

  const AnalyseRobustnessOptions& options_;
  std::vector<int> severities_;
  std::vector<std::string> corruptions_;
  std::shared_ptr<const data::Source> clean_;
  const data::CorruptionParameters* parameters_ = nullptr;
  std::shared_ptr<const data::FrostImages> frosts_;
  bool ours_ = false;  // the folders that `tessera data corrupt` wrote
};

// Error rate on one set, or its mean over several sets of the same images.
struct MeasuredError {
  double error = kUnknown;
  int64_t images = 0;
  // Counts each image once, since its corrupted versions are not independent samples.
  eval::Interval interval() const { return eval::wilson_of_mean(error, images); }
};

struct RobustModel {
  std::string name, file;
  MeasuredError clean;                                  // no images if there is no clean set
  std::vector<MeasuredError> errors;                    // for each corruption, the mean over the severities
  std::vector<std::vector<MeasuredError>> by_severity;  // for each corruption
};

MeasuredError mean_over(const std::vector<MeasuredError>& errors) {
  MeasuredError mean{.error = 0, .images = errors.at(0).images};
  for (const MeasuredError& one : errors) {
    mean.error += one.error / static_cast<double>(errors.size());
    mean.images = std::min(mean.images, one.images);
  }
  return mean;
}

MeasuredError measured_error(const ScoredSet& scored) {
  const std::vector<bool> hits = scored.hits();
  return {static_cast<double>(std::count(hits.begin(), hits.end(), false)) / static_cast<double>(hits.size()),
          std::ssize(hits)};
}

RobustModel measure(const AnalysedModel& model, const AnalysisInput& input, const RobustnessSets& sets,
                    const eval::CorruptionBaseline* baseline, bool first) {
  RobustModel out;
  out.name = model.info().model.name, out.file = input.weights;
  std::optional<ScoredSet> clean;
  if (sets.clean()) {
    clean = score_set(model, *sets.clean(), input.batch, input.count, "clean", input.classes_in_order);
    out.clean = measured_error(*clean);
    if (baseline) eval::require_as_many(*baseline, "clean", out.clean.images, baseline->clean_images);
  }
  for (const std::string& corruption : sets.corruptions()) {
    std::vector<MeasuredError> errors;
    for (const int severity : sets.severities()) {
      const ScoredSet scored =
          score_set(model, *sets.corrupted(corruption, severity), input.batch, input.count,
                    text(corruption, " ", severity), input.classes_in_order);
      if (clean) sets.require_same_images(*clean, scored, std::exchange(first, false));
      errors.push_back(measured_error(scored));
    }
    out.errors.push_back(mean_over(errors));
    out.by_severity.push_back(std::move(errors));
    if (baseline)
      eval::require_as_many(*baseline, corruption, out.errors.back().images,
                            eval::baseline_error(*baseline, corruption).images);
  }
  return out;
}

void add_cells(std::vector<std::string>& cells, const MeasuredError& error, int digits) {
  const eval::Interval interval = error.interval();
  for (const double value : {error.error, interval.low, interval.high}) cells.push_back(fixed(value, digits));
}

report::Drawing severity_drawing(const std::vector<RobustModel>& models, const std::vector<int>& severities) {
  std::vector<report::Curve> curves;
  for (const RobustModel& model : models) {
    report::Curve curve{.name = model.file};
    for (size_t s = 0; s < severities.size(); ++s) {
      double mean = 0;
      for (const auto& of_corruption : model.by_severity)
        mean += of_corruption[s].error / static_cast<double>(model.by_severity.size());
      curve.points.push_back({static_cast<double>(severities[s]), mean});
    }
    curves.push_back(std::move(curve));
  }
  return line_drawing(
      curves, {.title = "Error by severity", .x_label = "severity", .y_label = "error", .percent = true});
}

// For a single model, --baseline can read this table.
AnalysisSection errors_section(const std::vector<RobustModel>& models, const RobustnessSets& sets) {
  AnalysisSection section{.heading = "Errors",
                          .note =
                              "Shares of wrong answers, means over the severities, with Wilson's 95 % "
                              "interval of as many answers "
                              "as there are images."};
  if (sets.draws_frost()) section.note += text(" Of frost: ", data::kDrawnFrost, ".");
  section.table = {.name = "errors", .columns = {{"corruption"}, {"severities"}, {"images", true}}};
  for (const RobustModel& model : models) {
    const std::string before = models.size() > 1 ? model.file + " " : "";
    section.table.columns.push_back({models.size() > 1 ? model.file : "error", true});
    section.table.columns.insert(section.table.columns.end(),
                                 {{before + "low", true}, {before + "high", true}});
  }
  const auto row = [&](const std::string& name, const std::string& severities, const auto& error_of_model) {
    std::vector<std::string> cells = {name, severities, std::to_string(error_of_model(models[0]).images)};
    for (const RobustModel& model : models) add_cells(cells, error_of_model(model), 6);
    section.table.rows.push_back(std::move(cells));
  };
  if (sets.clean()) row("clean", "", [](const RobustModel& m) { return m.clean; });
  for (size_t c = 0; c < sets.corruptions().size(); ++c)
    row(sets.corruptions()[c], eval::severity_list(sets.severities(), " "),
        [&](const RobustModel& m) { return m.errors[c]; });
  section.drawings = {severity_drawing(models, sets.severities())};
  return section;
}

Json error_json(const MeasuredError& error) {
  const eval::Interval interval = error.interval();
  return {{"error", error.error}, {"low", interval.low}, {"high", interval.high}, {"images", error.images}};
}

Json robust_model_json(const RobustModel& model, const RobustnessSets& sets) {
  const MeasuredError mean = mean_over(model.errors);
  Json line = {{"weights", model.file}, {"model", model.name}, {"clean_error", model.clean.error}};
  if (sets.clean())
    line["clean_low"] = model.clean.interval().low, line["clean_high"] = model.clean.interval().high;
  line["mean_error"] = mean.error;
  line["mean_error_low"] = mean.interval().low, line["mean_error_high"] = mean.interval().high;
  for (size_t c = 0; c < sets.corruptions().size(); ++c) {
    const std::string& corruption = sets.corruptions()[c];
    auto errors = Json::array();
    Json all = error_json(model.errors[c]);
    for (size_t s = 0; s < sets.severities().size(); ++s) {
      const MeasuredError& one = model.by_severity[c][s];
      errors.push_back(one.error);
      all["severities"][std::to_string(sets.severities()[s])] = error_json(one);
    }
    line["errors"][corruption] = std::move(errors);
    line["corruptions"][corruption] = std::move(all);
  }
  return line;
}

eval::MeanCorruptionError mce_of(const RobustModel& model, const RobustnessSets& sets,
                                 const eval::CorruptionBaseline& baseline) {
  std::vector<eval::CorruptionError> errors;
  for (size_t c = 0; c < sets.corruptions().size(); ++c)
    errors.push_back({sets.corruptions()[c], model.errors[c].error, model.errors[c].images});
  return eval::mean_corruption_error(errors, model.clean.error, baseline);
}

// Fills `json` with an object for each model.
AnalysisSection means_section(const std::vector<RobustModel>& models, const RobustnessSets& sets,
                              const eval::CorruptionBaseline* baseline, Json& json) {
  AnalysisSection section{.heading = "Mean corruption error"};
  section.note = baseline ? text("Each corruption's error is divided by that of ", baseline->name,
                                 "; mCE is the mean over ", sets.corruptions().size(), " of its ",
                                 counted(std::ssize(baseline->errors), "corruption"), ".")
                          : "Without a baseline (--baseline), errors as they are.";
  section.table = {.name = "means",
                   .columns = {{"model"}, {"mean error", true}, {"low", true}, {"high", true}}};
  if (baseline)
    section.table.columns.insert(section.table.columns.end(), {{"mCE", true}, {"relative mCE", true}});
  for (const RobustModel& model : models) {
    std::vector<std::string> cells = {model.file};
    add_cells(cells, mean_over(model.errors), 4);
    Json line = robust_model_json(model, sets);
    if (baseline) {
      const auto mce = mce_of(model, sets, *baseline);
      cells.push_back(fixed(mce.mce, 4));
      cells.push_back(std::isfinite(mce.relative_mce) ? fixed(mce.relative_mce, 4) : "");
      line["mce"] = mce.mce, line["relative_mce"] = mce.relative_mce;
    }
    section.table.rows.push_back(std::move(cells));
    json.push_back(std::move(line));
  }
  return section;
}

AnalysisFindings findings_of(const std::vector<RobustModel>& models, const RobustnessSets& sets,
                             const eval::CorruptionBaseline* baseline, const std::string& precision) {
  AnalysisFindings out;
  out.title = models.size() == 1 ? "Robustness of " + models[0].name
                                 : text("Robustness of ", models.size(), " models");
  out.subtitle = text(sets.describe(), ", ", counted(std::ssize(sets.corruptions()), "corruption"),
                      ", severities ", eval::severity_list(sets.severities(), ","));
  out.sections.push_back(errors_section(models, sets));
  auto lines = Json::array();
  out.sections.push_back(means_section(models, sets, baseline, lines));
  out.json = {{"data", sets.describe()},
              {"corruptions", sets.corruptions()},
              {"severities", sets.severities()},
              {"precision", precision},
              {"baseline", baseline ? baseline->name : ""},
              {"models", lines}};
  if (!sets.reads_folders()) out.json["parameters"] = sets.parameters();
  if (sets.draws_frost()) out.json["frost"] = "drawn";
  return out;
}

std::optional<eval::CorruptionBaseline> read_baseline(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "alexnet") return eval::alexnet_on_imagenet_c();
  return eval::parse_baseline(read_text(name, 1 << 20), name);
}

void analyse(const AnalyseRobustnessOptions& options) {
  RobustnessSets sets(options);
  const auto known = read_baseline(options.baseline);
  const eval::CorruptionBaseline* baseline = known ? &*known : nullptr;
  if (baseline) eval::require_comparable(*baseline, sets.corruptions(), sets.severities());
  AnalysisWriter writer(options.output);
  const Interruptible stretch;
  std::vector<RobustModel> models;
  for (const std::string& weights : options.weights) {
    AnalysisInput input = options.input;
    input.weights = weights;
    const AnalysedModel model(input, AnalysisPrecisions::all);
    if (models.empty()) sets.open(model);
    models.push_back(measure(model, input, sets, baseline, models.empty()));
  }
  writer.write(findings_of(models, sets, baseline, options.input.precision));
}

}  // namespace

void add_analyse_robustness(Arguments& command, Action& action) {
  action = with_options<AnalyseRobustnessOptions>(command, analyse);
}

}  // namespace tessera::cli
