#include "cli/base/common.h"

#include <algorithm>
#include <cctype>

#include "cli/base/command.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "report/training_report.h"
#include "train/trainer.h"

namespace tessera::cli {
namespace {

constexpr size_t kFewPoints = 40;  // most points of a curve that needs no smoothing

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

// Adds a chart of training and validation values; nothing if neither was measured.
void add_chart(report::TrainingReport& page, const train::RunSummary& summary, const std::string& train_value,
               const std::string& eval_value, report::ChartOptions options) {
  report::Curve training = curve_of(summary, "train", train_value, "training");
  report::Curve validation = curve_of(summary, "eval", eval_value, "validation");
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
  if (!validation.points.empty()) chart.curves.push_back(std::move(validation));
  if (!chart.curves.empty()) page.charts.push_back(std::move(chart));
}

void add_facts(report::TrainingReport& page, const train::RunSummary& summary) {
  for (const tasks::Metric& metric : summary.final.metrics)
    page.facts.push_back({metric.info.name, value_text(metric, 2), ""});
  page.facts.push_back({"parameters", human_count(static_cast<double>(summary.plan.parameters)), ""});
  page.facts.push_back({"training time", human_duration(summary.seconds), ""});
  page.facts.push_back({"images/s", fixed(summary.images_per_second, 0),
                        text(fixed(100 * summary.wait_share, 1), " % waiting for data")});
}

std::string title_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  if (!name.empty()) name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name;
}

bool evaluated(const train::RunSummary& summary, const std::string& metric) {
  return std::ranges::any_of(summary.final.metrics,
                             [&](const tasks::Metric& one) { return one.info.name == metric; });
}

// Adds charts of the loss terms, each with the validation metric of the same name. If there is none,
// the first term gets the metric that selects the best weights, which otherwise has a separate
// chart.
void add_metric_charts(report::TrainingReport& page, const train::RunSummary& summary) {
  const tasks::MetricInfo& main = summary.main_metric;
  bool shown = main.name == "loss";
  for (const tasks::MetricInfo& term : summary.step_metrics) {
    std::string beside = evaluated(summary, term.name) ? term.name : "";
    if (beside.empty() && !shown && term.unit == main.unit) beside = main.name;
    shown = shown || beside == main.name;
    add_chart(page, summary, term.name, beside,
              {.title = title_of(term.name),
               .y_label = beside.empty() ? term.name : beside,
               .percent = term.unit == tasks::Unit::share});
  }
  if (!shown)
    add_chart(
        page, summary, "", main.name,
        {.title = title_of(main.name), .y_label = main.name, .percent = main.unit == tasks::Unit::share});
}

// Returns "24", or "16 of 24" after an early stop.
std::string steps_text(const train::RunSummary& summary) {
  const bool whole = summary.steps == summary.plan.steps;
  return whole ? text(summary.steps) : text(summary.steps, " of ", summary.plan.steps);
}

}  // namespace

std::string write_training_report(const train::RunSummary& summary) {
  report::TrainingReport page;
  page.title = summary.plan.model;
  page.subtitle = text(summary.plan.train_data, "; validation: ", summary.plan.validation_data);
  add_facts(page, summary);
  add_chart(page, summary, "loss", "loss", {.title = "Loss", .y_label = "loss"});
  add_metric_charts(page, summary);
  add_chart(page, summary, "grad_norm", "", {.title = "Gradient norm", .y_label = "norm", .log_y = true});
  add_chart(page, summary, "learning_rate", "", {.title = "Learning rate", .y_label = "rate"});
  add_chart(page, summary, "images_per_second", "", {.title = "Speed", .y_label = "images/s", .y_min = 0});
  page.blocks = summary.final.blocks;
  page.recipe = read_text(summary.output + "/recipe.toml");
  page.environment = {{"tessera", program_version()},
                      {"device", summary.plan.device},
                      {"threads", std::to_string(summary.plan.threads)},
                      {"steps", steps_text(summary)},
                      {"weights", summary.model_file}};
  if (summary.bad_images)
    page.warnings.push_back(text(counted(summary.bad_images, "image"),
                                 " could not be read: replaced in training, left out of the evaluation"));
  if (!summary.stopped_early.empty()) page.warnings.push_back(summary.stopped_early);
  for (const std::string& note : summary.final.notes) page.warnings.push_back(note);
  const std::string path = summary.output + "/report.html";
  write_text_atomic(path, report::render(page));
  return path;
}

}  // namespace tessera::cli
