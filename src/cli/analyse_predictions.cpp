// `tessera analyse predictions`: what the scores of one or several classifiers on one set say: accuracy with its interval, agreement
// beyond chance, areas under curves, calibration, and pairs of models on the same images.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>

#include "cli/analysis_output.h"
#include "cli/command.h"
#include "cli/scored_set.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/random.h"
#include "core/text.h"
#include "eval/classification.h"
#include "eval/discrimination.h"
#include "io/file.h"
#include "io/json.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  AnalysisInput input;
  AnalysisOutput output;
  std::vector<std::string> weights;
  std::string sizes, real;
  int64_t bins = 15, seed = 0;
  double share = 0;  // of the images that the temperature is fitted on
};

struct Judged {
  std::string name, file;
  int64_t size = 0;  // side of the input in pixels
  ScoredSet scored;
};

// The classes that each image of ImageNet's validation set shows, of none where people did not agree (Beyer et al. 2020, "Are we
// done with ImageNet?"): a list of lists in the order of the images' numbers.
class RealLabels {
 public:
  explicit RealLabels(const std::string& file) : file_(file) {
    const Json table =
        parse_json<Json>(read_text(file, uint64_t{64} << 20), file, {.max_bytes = uint64_t{64} << 20});
    check(table.is_array(), file, ": must be a list of lists of classes, one for each image");
    for (const Json& classes : table) {
      check(classes.is_array(), file, ": must be a list of lists of classes, one for each image");
      labels_.emplace_back();
      for (const Json& one : classes)
        if (one.is_number_integer()) labels_.back().push_back(one.get<int64_t>());
    }
  }
  // The share of images with labels whose best class is among them. Images are numbered from 1 in their names,
  // ILSVRC2012_val_00000001.JPEG.
  double accuracy(const ScoredSet& set) const {
    int64_t counted = 0, right = 0;
    for (int64_t i = 0; i < set.images(); ++i) {
      const std::string stem = std::filesystem::path(set.names[static_cast<size_t>(i)]).stem().string();
      const size_t digits = stem.find_last_not_of("0123456789") + 1;
      const auto number = parse_int(stem.substr(digits));
      if (!number || *number < 1 || *number > std::ssize(labels_))
        fail_usage(set.names[static_cast<size_t>(i)], ": --real ", file_, " has ", labels_.size(),
                   " images, and this name ends in no number of one");
      const auto& classes = labels_[static_cast<size_t>(*number - 1)];
      if (classes.empty()) continue;
      ++counted;
      right += std::count(classes.begin(), classes.end(), eval::best_class(set.row(i))) > 0;
    }
    return counted > 0 ? static_cast<double>(right) / static_cast<double>(counted) : 0;
  }

 private:
  std::string file_;
  std::vector<std::vector<int64_t>> labels_;
};

// What is measured of one model.
struct Measured {
  std::vector<std::pair<std::string, double>> numbers;  // in the order of the table
  eval::Interval accuracy;
  eval::Calibration calibration;
  double temperature = std::numeric_limits<double>::quiet_NaN();
};

eval::ClassificationMeter meter_of(const std::vector<float>& logits, const std::vector<int64_t>& labels,
                                   int64_t classes) {
  eval::ClassificationMeter meter(classes);
  meter.add(logits, labels);
  return meter;
}

// Mean over the classes that have samples and are not alone.
void areas(const std::vector<double>& scores, const ScoredSet& set, Measured& out) {
  double area = 0, precision = 0, counted = 0;
  for (int64_t c = 0; c < set.classes; ++c) {
    const auto rest = eval::one_against_rest(scores, set.labels, set.classes, c);
    const auto own = std::count(rest.positive.begin(), rest.positive.end(), true);
    if (own == 0 || own == std::ssize(rest.positive)) continue;
    area += eval::auroc(rest), precision += eval::average_precision(rest), counted += 1;
  }
  if (counted == 0)
    fail_usage(set.source,
               ": all images are of one class, and AUROC tells classes apart: take a set with two at least");
  out.numbers.emplace_back("auroc", area / counted);
  out.numbers.emplace_back("average_precision", precision / counted);
}

// The share set aside, by sample, and the rest.
std::pair<std::vector<int64_t>, std::vector<int64_t>> parts_of(int64_t images, const Options& options) {
  const auto order = RandomStream(static_cast<uint64_t>(options.seed), "temperature").permutation(images);
  const auto aside = static_cast<ptrdiff_t>(std::llround(options.share * static_cast<double>(images)));
  if (aside < 1 || aside >= images)
    fail_usage("--temperature ", options.share, " of ", counted(images, "image"), " leaves ",
               aside < 1 ? "none to fit on" : "none to measure");
  return {{order.begin(), order.begin() + aside}, {order.begin() + aside, order.end()}};
}

void add_temperature(const Options& options, const ScoredSet& set, Measured& out) {
  if (options.share <= 0) return;
  const auto [fitted, measured] = parts_of(set.images(), options);
  const auto part = [&](const std::vector<int64_t>& chosen) {
    std::pair<std::vector<float>, std::vector<int64_t>> rows;
    for (const int64_t i : chosen) {
      const auto row = set.row(i);
      rows.first.insert(rows.first.end(), row.begin(), row.end());
      rows.second.push_back(set.labels[static_cast<size_t>(i)]);
    }
    return rows;
  };
  const auto [fit_logits, fit_labels] = part(fitted);
  auto [logits, labels] = part(measured);
  out.temperature = eval::fit_temperature(fit_logits, fit_labels, set.classes);
  const auto before = meter_of(logits, labels, set.classes);
  for (float& logit : logits) logit = static_cast<float>(logit / out.temperature);
  const auto after = meter_of(logits, labels, set.classes);
  out.numbers.emplace_back("temperature", out.temperature);
  out.numbers.emplace_back("rest_ece", before.calibration(options.bins).ece);
  out.numbers.emplace_back("rest_ece_scaled", after.calibration(options.bins).ece);
  out.numbers.emplace_back("rest_nll_scaled", after.nll());
}

Measured measure(const Options& options, const ScoredSet& set) {
  Measured out;
  const std::vector<double> scores = eval::probabilities(set.logits, set.classes);
  const auto meter = meter_of(set.logits, set.labels, set.classes);
  const std::vector<int64_t> confusion = set.confusion();
  const std::vector<bool> hits = set.hits();
  const auto right = std::count(hits.begin(), hits.end(), true);
  out.accuracy = eval::wilson(right, set.images());
  out.calibration = meter.calibration(options.bins);
  eval::ClasswiseCalibration by_class(set.classes, options.bins);
  for (int64_t i = 0; i < set.images(); ++i)
    by_class.add(
        std::span(scores).subspan(static_cast<size_t>(i * set.classes), static_cast<size_t>(set.classes)),
        set.labels[static_cast<size_t>(i)]);
  out.numbers = {{"top1", meter.top(1)},
                 {"top1_low", out.accuracy.low},
                 {"top1_high", out.accuracy.high},
                 {"top5", meter.top(5)},
                 {"balanced_accuracy", eval::balanced_accuracy(confusion, set.classes)},
                 {"kappa", eval::kappa(confusion, set.classes)},
                 {"mcc", eval::matthews(confusion, set.classes)}};
  areas(scores, set, out);
  out.numbers.emplace_back("nll", meter.nll());
  out.numbers.emplace_back("brier", meter.brier());
  out.numbers.emplace_back("ece", out.calibration.ece);
  out.numbers.emplace_back("ece_equal_mass", meter.adaptive_ece(options.bins));
  out.numbers.emplace_back("ece_classwise", by_class.mean());
  out.numbers.emplace_back("max_calibration_error", out.calibration.max);
  add_temperature(options, set, out);
  return out;
}

report::Drawing reliability(const std::vector<Judged>& judged, const std::vector<Measured>& measured) {
  std::vector<report::Curve> curves = {
      {.name = "as sure as right", .points = {{0, 0}, {1, 1}}, .faint = true}};
  for (size_t m = 0; m < judged.size(); ++m) {
    report::Curve curve{.name = judged[m].name};
    for (const eval::CalibrationBin& bin : measured[m].calibration.bins)
      if (bin.count > 0) curve.points.push_back({bin.confidence, bin.accuracy});
    curves.push_back(std::move(curve));
  }
  return line_drawing(curves, {.title = "Reliability",
                               .x_label = "confidence",
                               .y_label = "accuracy",
                               .height = 420,
                               .percent = true,
                               .y_min = 0,
                               .y_max = 1});
}

// Each later model against the first one, on the same images.
AnalysisSection pairs_of(const std::vector<Judged>& judged, const Options& options, Json& json) {
  AnalysisSection section{
      .heading = "Pairs",
      .note =
          "Each model beside the first one, on the same images: the difference of accuracy with its 95 % "
          "interval from 10,000 bootstrap draws, and McNemar's exact test."};
  section.table = {.name = "pairs",
                   .columns = {{"model"},
                               {"only the first", true},
                               {"only this", true},
                               {"difference", true},
                               {"low", true},
                               {"high", true},
                               {"p", true}}};
  const std::vector<bool> first = judged[0].scored.hits();
  for (size_t m = 1; m < judged.size(); ++m) {
    const eval::PairedCounts counts = eval::compare_hits(first, judged[m].scored.hits());
    const eval::McNemar test = eval::mcnemar(counts);
    const eval::Interval interval =
        eval::paired_bootstrap(counts, 10000, static_cast<uint64_t>(options.seed));
    const double apart =
        static_cast<double>(counts.only_second - counts.only_first) / static_cast<double>(counts.samples);
    section.table.rows.push_back({judged[m].file, std::to_string(counts.only_first),
                                  std::to_string(counts.only_second), fixed(apart, 4), fixed(interval.low, 4),
                                  fixed(interval.high, 4), fixed(test.exact_p, 4)});
    json.push_back({{"model", judged[m].file},
                    {"only_first", counts.only_first},
                    {"only_this", counts.only_second},
                    {"difference", apart},
                    {"low", interval.low},
                    {"high", interval.high},
                    {"mcnemar_p", test.exact_p},
                    {"mcnemar_chi2", test.chi2}});
  }
  return section;
}

AnalysisSection bins_of(const Measured& measured) {
  AnalysisSection section{.heading = "Reliability of the first model"};
  section.table = {
      .name = "bins",
      .columns = {{"from", true}, {"to", true}, {"images", true}, {"confidence", true}, {"accuracy", true}}};
  for (const eval::CalibrationBin& bin : measured.calibration.bins)
    section.table.rows.push_back({fixed(bin.low, 4), fixed(bin.high, 4), std::to_string(bin.count),
                                  fixed(bin.confidence, 4), fixed(bin.accuracy, 4)});
  return section;
}

std::vector<int64_t> sizes_of(const Options& options) {
  if (options.sizes.empty()) return {options.input.size};
  std::vector<int64_t> sizes;
  for (const std::string& part : split(options.sizes, ',')) {
    const auto size = parse_int(trim(part));
    if (!size || *size < 1 || *size > 8192)
      fail_usage("--sizes: '", part, "' is no side in pixels (1 to 8192), as in 160,224,384");
    sizes.push_back(*size);
  }
  return sizes;
}

// Accuracy over the input's side, a curve for each file.
AnalysisSection sizes_section(const std::vector<Judged>& judged, const std::vector<Measured>& measured) {
  AnalysisSection section{.heading = "Accuracy over resolution"};
  section.table = {.name = "sizes",
                   .columns = {{"weights"}, {"size", true}, {"top1", true}, {"low", true}, {"high", true}}};
  std::vector<report::Curve> curves;
  for (size_t m = 0; m < judged.size(); ++m) {
    const double top1 = measured[m].numbers.at(0).second;
    if (curves.empty() || curves.back().name != judged[m].file) curves.push_back({.name = judged[m].file});
    curves.back().points.push_back({static_cast<double>(judged[m].size), top1});
    section.table.rows.push_back({judged[m].file, std::to_string(judged[m].size), fixed(top1, 4),
                                  fixed(measured[m].accuracy.low, 4), fixed(measured[m].accuracy.high, 4)});
  }
  section.drawings = {line_drawing(curves, {.title = "Accuracy over resolution",
                                            .x_label = "side in pixels",
                                            .y_label = "top-1",
                                            .percent = true})};
  return section;
}

void analyse(const Options& options) {
  const std::vector<int64_t> sizes = sizes_of(options);
  std::optional<RealLabels> real;
  if (!options.real.empty()) real.emplace(options.real);
  AnalysisWriter writer(options.output);
  const Interruptible stretch;
  std::shared_ptr<const data::Source> source;
  std::vector<Judged> judged;
  std::vector<Measured> measured;
  for (const std::string& weights : options.weights)
    for (const int64_t size : sizes) {
      AnalysisInput input = options.input;
      input.weights = weights, input.size = size;
      const AnalysedModel model(input);
      if (!source) source = open_set(input, model);
      const int64_t side = model.info().preprocess.size;
      const std::string label = sizes.size() > 1 ? text(weights, " at ", side) : weights;
      judged.push_back({model.info().model.name, weights, side,
                        score_set(model, *source, input.batch, input.count, label)});
      measured.push_back(measure(options, judged.back().scored));
      if (real) measured.back().numbers.emplace_back("real_top1", real->accuracy(judged.back().scored));
      if (judged.back().scored.names != judged[0].scored.names)
        fail(weights, ": other images could be read than for ", judged[0].file,
             ", and only the same can be compared");
    }
  const ScoredSet& set = judged[0].scored;
  AnalysisFindings out;
  out.title = judged.size() == 1 ? "Predictions of " + judged[0].name
                                 : text("Predictions of ", judged.size(), " models");
  out.subtitle = text(set.source, "; ", counted(set.images(), "image"), ", classes: ", set.mapping);
  AnalysisSection section{
      .heading = "Measures",
      .note = text("Intervals of accuracy are Wilson's at 95 %; calibration in ", options.bins, " bins.")};
  section.table = {.name = "measures", .columns = {{"measure"}}};
  for (const Judged& one : judged)
    section.table.columns.push_back({sizes.size() > 1    ? text(one.file, " at ", one.size)
                                     : judged.size() > 1 ? one.file
                                                         : one.name,
                                     true});
  for (size_t row = 0; row < measured[0].numbers.size(); ++row) {
    std::vector<std::string> cells = {measured[0].numbers[row].first};
    for (const Measured& one : measured) cells.push_back(fixed(one.numbers[row].second, 4));
    section.table.rows.push_back(std::move(cells));
  }
  section.drawings = {reliability(judged, measured)};
  auto models = Json::array();
  for (size_t m = 0; m < judged.size(); ++m) {
    Json line = {{"weights", judged[m].file}, {"model", judged[m].name}, {"size", judged[m].size}};
    for (const auto& [name, value] : measured[m].numbers) line[name] = value;
    models.push_back(line);
  }
  out.json = {{"data", set.source}, {"images", set.images()}, {"classes", set.mapping}, {"models", models}};
  out.sections.push_back(std::move(section));
  if (sizes.size() > 1) out.sections.push_back(sizes_section(judged, measured));
  if (judged.size() > 1) {
    auto pairs = Json::array();
    out.sections.push_back(pairs_of(judged, options, pairs));
    out.json["pairs"] = pairs;
  }
  out.sections.push_back(bins_of(measured[0]));
  writer.write(out);
}

}  // namespace

void add_analyse_predictions(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  options->input.count = 0, options->input.batch = 64;
  add_set_options(command, options->input, options->weights);
  command.add("--bins", options->bins, "of the calibration errors").show_default().range(1, 1000);
  command
      .add("--temperature", options->share,
           "share of the images set aside to fit a temperature, as 0.2; the rest is measured with it (0: "
           "none)")
      .show_default()
      .range(0.0, 0.9);
  command.add("--sizes", options->sizes, "several input sides as 160,224,384: a column each, and a curve");
  command.add("--real", options->real,
              "ReaL labels of ImageNet's validation set (real.json), for a further accuracy");
  command.add("--seed", options->seed, "chooses the images set aside, and the bootstrap's draws")
      .show_default();
  add_output_options(command, options->output);
  action = [options] { analyse(*options); };
}

}  // namespace tessera::cli
