#include "cli/train_report.h"

#include <algorithm>

#include "cli/version.h"
#include "core/text.h"
#include "core/toml.h"
#include "io/file.h"
#include "report/training_report.h"

namespace tessera::cli {
namespace {

constexpr size_t kFewPoints = 40;  // of a curve that needs no smoothing

// One curve of a named value over epochs, from the lines of one kind.
report::Curve curve_of(const train::RunSummary& summary, const std::string& kind, const std::string& value,
                       const std::string& name) {
  report::Curve curve{.name = name};
  for (const train::HistoryPoint& point : summary.history) {
    if (point.kind != kind) continue;
    for (const auto& [key, number] : point.values)
      if (key == value) curve.points.push_back({point.epoch, number});
  }
  return curve;
}

// Training and held-out values in one chart; nothing where neither was measured.
void add_chart(report::TrainingReport& page, const train::RunSummary& summary, const std::string& train_value,
               const std::string& eval_value, report::ChartOptions options) {
  report::Curve training = curve_of(summary, "train", train_value, "training");
  report::Curve held_out = curve_of(summary, "eval", eval_value, "held out");
  report::Chart chart{.options = std::move(options), .curves = {}};
  chart.options.x_label = "epoch";
  if (const size_t count = training.points.size(); count > kFewPoints) {  // a line of its own for the trend
    report::Curve trend = report::smoothed(training, count / kFewPoints * 2 + 1);
    training.faint = true;
    chart.curves.push_back(std::move(training));
    chart.curves.push_back(std::move(trend));
  } else if (count > 0) {
    chart.curves.push_back(std::move(training));
  }
  if (!held_out.points.empty()) chart.curves.push_back(std::move(held_out));
  if (!chart.curves.empty()) page.charts.push_back(std::move(chart));
}

std::string class_text(const train::RunSummary& summary, const std::vector<int64_t>& labels) {
  std::vector<std::string> names;
  for (const int64_t label : labels) {
    const auto i = static_cast<size_t>(label);
    names.push_back(i < summary.class_names.size() ? summary.class_names[i] : std::to_string(label));
  }
  return join(names, ", ");
}

void add_confusion(report::TrainingReport& page, const train::RunSummary& summary) {
  if (summary.confusion.empty()) return;
  page.confusion.class_names = summary.class_names;
  for (const auto& row : summary.confusion)
    page.confusion.counts.insert(page.confusion.counts.end(), row.begin(), row.end());
}

void add_facts(report::TrainingReport& page, const train::RunSummary& summary) {
  for (const auto& [name, value] : summary.final_metrics) {
    const bool share = name.starts_with("acc") || name.starts_with("top") || name == "mAP" || name == "map";
    page.facts.push_back({name, share ? fixed(100 * value, 2) + " %" : fixed(value, 4), ""});
  }
  page.facts.push_back({"parameters", human_count(static_cast<double>(summary.plan.parameters)), ""});
  page.facts.push_back({"training time", human_duration(summary.seconds), ""});
  page.facts.push_back({"images/s", fixed(summary.images_per_second, 0),
                        text(fixed(100 * summary.wait_share, 1), " % waiting for data")});
}

}  // namespace

std::string write_training_report(const train::Recipe& recipe, const train::RunSummary& summary) {
  report::TrainingReport page;
  page.title = summary.plan.model;
  page.subtitle = text(summary.plan.train_data, "; held out: ", summary.plan.validation_data);
  add_facts(page, summary);
  add_chart(page, summary, "loss", "loss", {.title = "Loss", .y_label = "loss"});
  add_chart(page, summary, "accuracy", summary.main_metric,
            {.title = "Accuracy", .y_label = summary.main_metric, .percent = true});
  add_chart(page, summary, "grad_norm", "", {.title = "Gradient norm", .y_label = "norm", .log_y = true});
  add_chart(page, summary, "learning_rate", "", {.title = "Learning rate", .y_label = "rate"});
  add_chart(page, summary, "images_per_second", "", {.title = "Speed", .y_label = "images/s", .y_min = 0});
  add_confusion(page, summary);
  for (const train::PredictedPicture& picture : summary.pictures)
    page.examples.push_back(
        {.picture = picture.picture,
         .label = class_text(summary, picture.labels),
         .predicted = class_text(summary, {picture.prediction}),
         .probability = picture.probability,
         .right = std::count(picture.labels.begin(), picture.labels.end(), picture.prediction) > 0});
  page.recipe = write_toml(train::recipe_table(recipe));
  page.environment = {{"tessera", program_version()},
                      {"device", summary.plan.device},
                      {"threads", std::to_string(summary.plan.threads)},
                      {"steps", std::to_string(summary.plan.steps)},
                      {"weights", summary.model_file}};
  if (summary.bad_images)
    page.warnings.push_back(text(
        summary.bad_images, " pictures could not be read: replaced in training, left out of the evaluation"));
  const std::string path = summary.output + "/report.html";
  write_text_atomic(path, report::render(page));
  return path;
}

}  // namespace tessera::cli
