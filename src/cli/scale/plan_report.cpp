#include "cli/scale/reports.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "plan/layout.h"
#include "report/charts.h"
#include "report/markup.h"
#include "report/matrix_chart.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using report::compact;

std::string bytes_text(double bytes) { return human_bytes(static_cast<uint64_t>(std::max(0.0, bytes))); }

std::string seconds_text(double seconds) {
  return seconds < 1 ? compact(seconds * 1e3, 3) + " ms" : compact(seconds, 4) + " s";
}

Json json_of(const plan::Layout& layout) {
  return {{"data", layout.data},
          {"tensor", layout.tensor},
          {"pipeline", layout.pipeline},
          {"virtual_stages", layout.virtual_stages},
          {"context", layout.context},
          {"zero", layout.zero},
          {"microbatch", layout.microbatch},
          {"recompute", plan::name_of(layout.recompute)}};
}

template <class Number>
Json json_of(const std::vector<std::pair<const char*, Number>>& values) {
  Json json;
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}

Json json_of(const plan::Plan& plan) {
  const std::string missing = plan::why_not_yet(plan.layout);
  return {{"layout", json_of(plan.layout)},
          {"seconds", plan.cost.time.sum()},
          {"mfu", plan.cost.mfu},
          {"limit", plan.cost.time.limit()},
          {"memory_bytes", plan.cost.memory.sum()},
          {"time", json_of(plan.cost.time.by_cause())},
          {"memory", json_of(plan.cost.memory.by_kind())},
          {"traffic",
           {{"data", plan.cost.traffic.data},
            {"tensor", plan.cost.traffic.tensor},
            {"pipeline", plan.cost.traffic.pipeline}}},
          {"not_yet", missing.empty() ? Json(nullptr) : Json(missing)}};
}

// Named parts of a whole, the largest first; parts below a thousandth are left out.
AnalysisSection parts_section(const char* heading, const char* name,
                              std::vector<std::pair<const char*, double>> parts, bool seconds) {
  double sum = 0;
  for (const auto& [part, value] : parts) sum += value;
  std::erase_if(parts, [&](const auto& part) { return !(part.second > 1e-3 * sum); });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  AnalysisSection section{.heading = heading};
  section.table = {
      .name = name,
      .columns = {{seconds ? "cause" : "kind"}, {seconds ? "time" : "bytes", true}, {"share", true}}};
  std::vector<report::Bar> bars;
  for (const auto& [part, value] : parts) {
    const std::string amount = seconds ? seconds_text(value) : bytes_text(value);
    section.table.rows.push_back({part, amount, text(fixed(100 * value / sum, 1), " %")});
    bars.push_back({.name = part, .value = value / sum, .note = amount});
  }
  const auto drawing = [&](double width) {
    return report::bar_chart(bars, {.title = heading, .width = width, .percent = true, .y_max = 1});
  };
  section.drawings = {{drawing(720), drawing(320)}};
  return section;
}

// Draws the stages over time: forward passes in light colours, backward passes in dark ones, idle time empty.
AnalysisSection schedule_section(const plan::Layout& layout, int64_t batch) {
  AnalysisSection section{.heading = "Schedule"};
  if (layout.pipeline == 1) return section;
  const int64_t stages = std::min<int64_t>(layout.pipeline, 16),
                microbatches = std::min<int64_t>(layout.microbatches(batch), 24);
  const plan::Schedule schedule = plan::one_forward_one_backward(stages, microbatches);
  report::Matrix matrix;
  for (size_t s = 0; s < schedule.size(); ++s) {
    matrix.rows.push_back(text("stage ", s));
    for (const plan::Slot& slot : schedule[s])
      matrix.values.push_back(slot.work == plan::Work::idle ? NAN : slot.work == plan::Work::forward ? 1 : 2);
  }
  for (size_t slot = 0; slot < schedule[0].size(); ++slot) matrix.columns.push_back(text(slot));
  section.note = text("One forward, one backward, of ", stages, " stages and ", microbatches,
                      " microbatches: 1 is a forward pass, 2 a backward pass, an empty cell is idle.");
  section.drawings = {
      same_drawing(report::matrix_chart(matrix, {.title = "Schedule", .width = 900, .digits = 0}))};
  return section;
}

AnalysisSection layouts_section(const std::vector<plan::Plan>& plans) {
  AnalysisSection section{.heading = "Layouts"};
  section.table = {.name = "layouts",
                   .columns = {{"layout"},
                               {"step", true},
                               {"MFU", true},
                               {"memory", true},
                               {"sent a chip", true},
                               {"limit"},
                               {"this program cannot run yet"}}};
  for (const plan::Plan& plan : plans) {
    const plan::StepTraffic& traffic = plan.cost.traffic;
    section.table.rows.push_back(
        {plan.layout.text(), seconds_text(plan.cost.time.sum()), text(fixed(100 * plan.cost.mfu, 1), " %"),
         bytes_text(plan.cost.memory.sum()), bytes_text(traffic.data + traffic.tensor + traffic.pipeline),
         plan.cost.time.limit(), plan::why_not_yet(plan.layout)});
  }
  return section;
}

// Adds the constants to `json`, by name.
AnalysisSection constants_section(const plan::Constants& constants, Json& json) {
  AnalysisSection fitted{.heading = "Constants"};
  fitted.table = {.name = "constants", .columns = {{"constant"}, {"value", true}, {"unit"}, {"meaning"}}};
  for (size_t i = 0; i < constants.values.size(); ++i) {
    const plan::Constant& constant = plan::constant_table()[i];
    fitted.table.rows.push_back(
        {constant.name, compact(constants.values[i], 4), constant.unit, constant.meaning});
    json[constant.name] = constants.values[i];
  }
  return fitted;
}

AnalysisSection predictions_section(const std::vector<plan::Prediction>& apart, Json& list) {
  AnalysisSection predictions{
      .heading = "Predicted next to published",
      .note = "Seconds of a step; each point is predicted by constants fitted without its fold."};
  predictions.table = {.name = "points",
                       .columns = {{"point"},
                                   {"predicted", true},
                                   {"published", true},
                                   {"error", true},
                                   {"memory", true},
                                   {"published", true}}};
  for (const plan::Prediction& point : apart) {
    const bool memory = point.published_bytes > 0;
    predictions.table.rows.push_back({point.id, compact(point.seconds, 4), compact(point.published, 4),
                                      text(fixed(100 * point.error(), 1), " %"),
                                      memory ? bytes_text(point.memory_bytes) : "",
                                      memory ? bytes_text(point.published_bytes) : ""});
    list.push_back({{"id", point.id}, {"predicted", point.seconds}, {"published", point.published}});
  }
  return predictions;
}

}  // namespace

AnalysisFindings findings_of(const PlanInput& input, const std::vector<plan::Plan>& plans) {
  const plan::Plan& best = plans.front();
  AnalysisFindings out;
  out.title = text("Plan of ", input.shape.name, " on ", input.cluster.chips, " x ", input.cluster.chip.name);
  out.subtitle =
      text(human_count(input.shape.all_parameters()), " parameters, ", human_count(input.shape.all_trained()),
           " trained, batch ", input.arithmetic.batch, "; costs from ", input.source);
  out.facts = {{"step", seconds_text(best.cost.time.sum()), best.layout.text()},
               {"MFU", text(fixed(100 * best.cost.mfu, 1), " %"), text("limit: ", best.cost.time.limit())},
               {"memory", bytes_text(best.cost.memory.sum()),
                text("of ", bytes_text(input.cluster.chip.memory_bytes), " a chip")}};
  out.sections.push_back(layouts_section(plans));
  out.sections.push_back(parts_section("Time of a step by cause", "time", best.cost.time.by_cause(), true));
  out.sections.push_back(
      parts_section("Memory of a chip by kind", "memory", best.cost.memory.by_kind(), false));
  AnalysisSection schedule = schedule_section(best.layout, input.arithmetic.batch);
  if (!schedule.drawings.empty()) out.sections.push_back(std::move(schedule));
  auto list = Json::array();
  for (const plan::Plan& plan : plans) list.push_back(json_of(plan));
  out.json = {{"model", input.shape.name},
              {"parameters", input.shape.all_parameters()},
              {"trained_parameters", input.shape.all_trained()},
              {"training_macs", input.shape.training_macs()},
              {"chip", input.cluster.chip.name},
              {"chips", input.cluster.chips},
              {"batch", input.arithmetic.batch},
              {"source", input.source},
              {"plans", list}};
  return out;
}

AnalysisFindings findings_of_fit(const std::vector<plan::Published>& points) {
  const plan::Constants constants = plan::fit_constants(points);
  const std::vector<plan::Prediction> apart = plan::cross_validate(points);
  const plan::Errors errors = plan::errors_of(apart);
  AnalysisFindings out;
  out.title = text("Constants of the planner, fitted on ", points.size(), " published figures");
  out.subtitle = text("five-fold cross-validation: median error ", fixed(100 * errors.median, 1), " %, ",
                      fixed(100 * errors.within_10, 0), " % within 10 %, ", fixed(100 * errors.within_25, 0),
                      " % within 25 %");
  Json json;
  auto list = Json::array();
  out.sections = {constants_section(constants, json), predictions_section(apart, list)};
  out.json = {{"constants", json},
              {"median_error", errors.median},
              {"within_10", errors.within_10},
              {"within_25", errors.within_25},
              {"points", list}};
  return out;
}

}  // namespace tessera::cli
