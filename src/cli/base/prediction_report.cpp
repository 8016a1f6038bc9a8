#include "cli/base/prediction_report.h"

#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

report::Drawing curves_of(const std::vector<MeasuredPredictions>& measured, const std::string& title,
                          const std::string& x_label, const std::string& y_label,
                          std::vector<eval::CurvePoint> eval::PredictionMeasures::*points,
                          const report::Curve& beside) {
  std::vector<report::Curve> curves;
  if (!beside.points.empty()) curves.push_back(beside);
  for (const MeasuredPredictions& one : measured) {
    report::Curve curve{.name = one.label};
    for (const eval::CurvePoint& point : one.measures.*points) curve.points.push_back({point.x, point.y});
    curves.push_back(std::move(curve));
  }
  return line_drawing(curves, {.title = title,
                               .x_label = x_label,
                               .y_label = y_label,
                               .height = 420,
                               .percent = true,
                               .y_min = 0,
                               .y_max = 1});
}

report::Drawing reliability(const std::vector<MeasuredPredictions>& measured) {
  std::vector<report::Curve> curves = {
      {.name = "as sure as right", .points = {{0, 0}, {1, 1}}, .faint = true}};
  for (const MeasuredPredictions& one : measured) {
    report::Curve curve{.name = one.label};
    for (const eval::CalibrationBin& bin : one.measures.calibration.bins)
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

}  // namespace

AnalysisSection measures_section(const std::vector<MeasuredPredictions>& measured, int64_t bins) {
  AnalysisSection section{
      .heading = "Measures",
      .note = text(
          "Intervals of accuracy are Wilson's at 95 %; areas are means over the classes; calibration in ",
          bins, " bins.")};
  section.table = {.name = "measures", .columns = {{"measure"}}};
  for (const MeasuredPredictions& one : measured) section.table.columns.push_back({one.label, true});
  for (size_t row = 0; row < measured.at(0).measures.numbers.size(); ++row) {
    std::vector<std::string> cells = {measured[0].measures.numbers[row].first};
    for (const MeasuredPredictions& one : measured)
      cells.push_back(fixed(one.measures.numbers[row].second, 4));
    section.table.rows.push_back(std::move(cells));
  }
  section.drawings = {reliability(measured),
                      curves_of(measured, "ROC, mean of the classes", "false positives", "true positives",
                                &eval::PredictionMeasures::roc,
                                {.name = "chance", .points = {{0, 0}, {1, 1}}, .faint = true}),
                      curves_of(measured, "Precision and recall, mean of the classes", "recall", "precision",
                                &eval::PredictionMeasures::precision_recall, {})};
  return section;
}

AnalysisSection bins_section(const MeasuredPredictions& measured) {
  AnalysisSection section{.heading = "Reliability of " + measured.label};
  section.table = {
      .name = "bins",
      .columns = {{"from", true}, {"to", true}, {"images", true}, {"confidence", true}, {"accuracy", true}}};
  for (const eval::CalibrationBin& bin : measured.measures.calibration.bins)
    section.table.rows.push_back({fixed(bin.low, 4), fixed(bin.high, 4), std::to_string(bin.count),
                                  fixed(bin.confidence, 4), fixed(bin.accuracy, 4)});
  return section;
}

nlohmann::ordered_json measures_json(const eval::PredictionMeasures& measures) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : measures.numbers) out[name] = value;
  return out;
}

AnalysisSection pairs_section(const std::vector<NamedHits>& models, uint64_t seed,
                              nlohmann::ordered_json& json) {
  AnalysisSection section{
      .heading = "Pairs",
      .note =
          "Each model next to the first one, on the same images: the difference of accuracy with its 95 % "
          "interval from 10,000 bootstrap draws, and McNemar's exact test."};
  section.table = {.name = "pairs",
                   .columns = {{"model"},
                               {"only the first", true},
                               {"only this", true},
                               {"difference", true},
                               {"low", true},
                               {"high", true},
                               {"p", true}}};
  for (size_t m = 1; m < models.size(); ++m) {
    const eval::PairedCounts counts = eval::compare_hits(models[0].hits, models[m].hits);
    const eval::McNemar test = eval::mcnemar(counts);
    const eval::Interval interval = eval::paired_bootstrap(counts, 10000, seed);
    const double apart =
        static_cast<double>(counts.only_second - counts.only_first) / static_cast<double>(counts.samples);
    section.table.rows.push_back({models[m].label, std::to_string(counts.only_first),
                                  std::to_string(counts.only_second), fixed(apart, 4), fixed(interval.low, 4),
                                  fixed(interval.high, 4), fixed(test.exact_p, 4)});
    json.push_back({{"model", models[m].label},
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

}  // namespace tessera::cli
