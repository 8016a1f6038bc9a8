// `tessera analyse predictions`: scores of one or several classifiers on one set: accuracy with its
// interval, agreement beyond chance, areas under curves, calibration, and pairs of models on the same
// images.
#include <iostream>
#include <optional>

#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/kept_temperature.h"
#include "cli/base/measure_options.h"
#include "cli/base/prediction_report.h"
#include "cli/base/real_labels.h"
#include "cli/base/scored_set.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalysePredictionsOptions {
  AnalysisInput input = {0, 64};
  AnalysisOutput output;
  PredictionSettings predictions;
  std::vector<std::string> weights;
  std::string sizes;

  template <class V>
  void visit(V& v) {
    input.visit_set(v, weights);
    visit_classes_in_order(v, input.classes_in_order);
    v("predictions", predictions, "");
    v("sizes", sizes, "several input sides, 160,224,384: a column for each, and a curve");
    v("output", output, "");
  }
};

struct Judged {
  std::string name, file;
  int64_t size = 0;  // side of the input in pixels
  ScoredSet scored;
};

// Appends the accuracy on ReaL labels with its interval.
void add_real_accuracy(const RealLabels& real, const ScoredSet& set, eval::PredictionMeasures& measures) {
  const RealLabels::Count count = real.count(
      set.images(), [&](int64_t i) { return set.names[static_cast<size_t>(i)]; },
      [&](int64_t i) { return eval::best_class(set.row(i)); });
  const eval::Interval interval = eval::wilson(count.right, count.counted);
  measures.numbers.emplace_back("real_top1", count.share());
  measures.numbers.emplace_back("real_top1_low", interval.low);
  measures.numbers.emplace_back("real_top1_high", interval.high);
}

std::vector<int64_t> sizes_of(const AnalysePredictionsOptions& options) {
  return options.sizes.empty() ? std::vector{options.input.size} : parse_sides("--sizes", options.sizes);
}

// Returns the set without the images on which a temperature of the weights was fitted.
std::shared_ptr<const data::Source> set_of(const AnalysePredictionsOptions& options,
                                           const AnalysedModel& first) {
  std::vector<std::string> notes;
  const auto all = describe_all(options.weights, options.input.model, options.input.raw, options.input.key);
  const auto set = without_fitted(open_set(options.input, first), all, notes);
  for (const std::string& note : notes) std::cerr << one_line(note) << "\n";
  return set;
}

// Draws accuracy over the image side, one curve per file.
AnalysisSection sizes_section(const std::vector<Judged>& judged,
                              const std::vector<MeasuredPredictions>& measured) {
  AnalysisSection section{.heading = "Accuracy over resolution"};
  section.table = {.name = "sizes",
                   .columns = {{"weights"}, {"size", true}, {"top1", true}, {"low", true}, {"high", true}}};
  std::vector<report::Curve> curves;
  for (size_t m = 0; m < judged.size(); ++m) {
    const double top1 = measured[m].measures.numbers.at(0).second;
    if (curves.empty() || curves.back().name != judged[m].file) curves.push_back({.name = judged[m].file});
    curves.back().points.push_back({static_cast<double>(judged[m].size), top1});
    section.table.rows.push_back({judged[m].file, std::to_string(judged[m].size), fixed(top1, 4),
                                  fixed(measured[m].measures.accuracy.low, 4),
                                  fixed(measured[m].measures.accuracy.high, 4)});
  }
  section.drawings = {line_drawing(curves, {.title = "Accuracy over resolution",
                                            .x_label = "side in pixels",
                                            .y_label = "top-1",
                                            .percent = true})};
  return section;
}

// The models at each of their sizes, all measured on the same images.
struct Measurement {
  const AnalysePredictionsOptions& options;
  std::vector<int64_t> sizes = sizes_of(options);
  std::optional<RealLabels> real = {};
  eval::PredictionOptions measures = options.predictions.measures;
  std::shared_ptr<const data::Source> source = {};
  std::vector<Judged> judged = {};
  std::vector<MeasuredPredictions> measured = {};
  std::vector<NamedHits> hits = {};

  void add(const std::string& weights, int64_t size) {
    AnalysisInput input = options.input;
    input.weights = weights, input.size = size;
    const AnalysedModel model(input, AnalysisPrecisions::all);
    if (!source) {
      source = set_of(options, model);
      say_whose_set(input, options.weights, *source);
    }
    const int64_t side = model.info().preprocess.size;
    const std::string file = sizes.size() > 1 ? text(weights, " at ", side) : weights;
    judged.push_back({model.info().model.name, weights, side,
                      score_set(model, *source, input.batch, input.count, file, input.classes_in_order)});
    const ScoredSet& set = judged.back().scored;
    const bool alone = options.weights.size() * sizes.size() == 1;
    measured.push_back({alone ? model.info().model.name : file,
                        eval::measure_predictions({set.logits, set.labels, set.classes}, measures)});
    if (const std::string line = search_end(measured.back().measures.temperature); !line.empty())
      std::cerr << one_line(file) << ": " << line << "\n";
    hits.push_back({file, set.hits()});
    if (real) add_real_accuracy(*real, set, measured.back().measures);
    if (set.names != judged[0].scored.names)
      fail(weights, ": other images could be read than for ", judged[0].file,
           ", and only the same can be compared");
  }
  Json models() const {
    auto out = Json::array();
    for (size_t m = 0; m < judged.size(); ++m) {
      Json line = {{"weights", judged[m].file}, {"model", judged[m].name}, {"size", judged[m].size}};
      line.update(measures_json(measured[m].measures));
      out.push_back(line);
    }
    return out;
  }
};

void analyse(const AnalysePredictionsOptions& options) {
  Measurement all{options};
  if (!options.predictions.real.empty()) all.real.emplace(options.predictions.real);
  all.measures.seed = options.predictions.draws();
  AnalysisWriter writer(options.output);
  const Interruptible stretch;
  for (const std::string& weights : options.weights)
    for (const int64_t size : all.sizes) all.add(weights, size);
  const ScoredSet& set = all.judged[0].scored;
  AnalysisFindings out;
  out.title = all.judged.size() == 1 ? "Predictions of " + all.judged[0].name
                                     : text("Predictions of ", all.judged.size(), " models");
  out.subtitle = text(set.source, "; ", counted(set.images(), "image"), ", classes: ", set.mapping);
  out.sections.push_back(measures_section(all.measured, all.measures.bins));
  out.json = {{"data", set.source},
              {"images", set.images()},
              {"classes", set.mapping},
              {"precision", options.input.precision},
              {"models", all.models()}};
  if (all.sizes.size() > 1) out.sections.push_back(sizes_section(all.judged, all.measured));
  if (all.judged.size() > 1) {
    auto pairs = Json::array();
    out.sections.push_back(pairs_section(all.hits, all.measures.seed, pairs));
    out.json["pairs"] = pairs;
  }
  out.sections.push_back(bins_section(all.measured[0]));
  writer.write(out);
}

}  // namespace

void add_analyse_predictions(Arguments& command, Action& action) {
  action = with_options<AnalysePredictionsOptions>(command, analyse);
}

}  // namespace tessera::cli
