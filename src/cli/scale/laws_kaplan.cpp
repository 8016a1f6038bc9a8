// The findings of Kaplan et al. 2020 apart from the laws themselves, checked on the runs of a sweep.
#include <algorithm>
#include <cmath>

#include "cli/scale/reports.h"
#include "core/error.h"
#include "core/text.h"
#include "laws/curve_fit.h"
#include "report/markup.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using report::compact;

bool near(double a, double b) { return std::abs(std::log(a / b)) < 0.05; }

// Runs of about equal size and length: their losses differ only by the model's shape.
void add_shapes(const std::vector<laws::Point>& points, AnalysisFindings& out) {
  AnalysisSection section{.heading = "Shape at equal size",
                          .note =
                              "Points with parameters and samples within 5 %: the spread of their losses is "
                              "the effect of depth and width."};
  section.table = {
      .name = "shapes",
      .columns = {
          {"parameters", true}, {"samples", true}, {"points", true}, {"least loss", true}, {"spread", true}}};
  auto json = Json::array();
  std::vector<bool> done(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (done[i]) continue;
    double low = points[i].loss, high = low;
    int count = 1;
    for (size_t j = i + 1; j < points.size(); ++j)
      if (!done[j] && near(points[i].parameters, points[j].parameters) &&
          near(points[i].samples, points[j].samples)) {
        done[j] = true, ++count;
        low = std::min(low, points[j].loss), high = std::max(high, points[j].loss);
      }
    if (count < 2) continue;
    section.table.rows.push_back({compact(points[i].parameters), compact(points[i].samples), text(count),
                                  fixed(low, 4), text(fixed(100 * (high / low - 1), 1), " %")});
    json.push_back({{"parameters", points[i].parameters},
                    {"samples", points[i].samples},
                    {"points", count},
                    {"low", low},
                    {"high", high}});
    if (section.table.rows.size() == 40) break;
  }
  if (json.empty()) return;
  out.json["shapes"] = json;
  out.sections.push_back(std::move(section));
}

void add_extrapolations(const std::vector<laws::Curve>& curves, AnalysisFindings& out) {
  AnalysisSection section{
      .heading = "Curves from their first half",
      .note =
          "L(D) = floor + scale / D^exponent, fitted to the first half of each curve, at its "
          "end. A learning rate that falls makes the end better than predicted."};
  section.table = {.name = "curves",
                   .columns = {{"run"}, {"predicted", true}, {"measured", true}, {"error", true}}};
  auto json = Json::array();
  for (const laws::Curve& curve : curves) {
    const laws::Extrapolation found = laws::extrapolate(curve);
    if (!std::isfinite(found.measured)) continue;
    section.table.rows.push_back({curve.name, fixed(found.predicted, 4), fixed(found.measured, 4),
                                  text(fixed(100 * (found.predicted / found.measured - 1), 1), " %")});
    json.push_back({{"run", curve.name}, {"predicted", found.predicted}, {"measured", found.measured}});
  }
  if (json.empty()) return;
  out.json["curves"] = json;
  out.sections.push_back(std::move(section));
}

// Returns pairs of the loss and another measure, for points that have it.
void add_against(const std::vector<laws::Point>& points, double laws::Point::*member, const char* name,
                 const char* heading, AnalysisFindings& out) {
  std::vector<double> losses, others;
  for (const laws::Point& point : points)
    if (std::isfinite(point.*member)) losses.push_back(point.loss), others.push_back(point.*member);
  if (losses.size() < 3) return;
  const double correlation = laws::rank_correlation(losses, others);
  AnalysisSection section{.heading = heading, .note = text("Rank correlation ", fixed(correlation, 3), ".")};
  report::Curve curve{.name = name};
  std::vector<size_t> order(losses.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return losses[a] < losses[b]; });
  for (const size_t i : order) curve.points.push_back({losses[i], others[i]});
  section.drawings = {
      line_drawing({curve}, {.title = heading, .x_label = "validation loss", .y_label = name})};
  out.json[name] = {{"rank_correlation", correlation}, {"points", losses.size()}};
  out.sections.push_back(std::move(section));
}

// Samples that each size needs for a loss that most sizes reach, and at which it is the best for its compute.
void add_samples(const std::vector<laws::Point>& points, const laws::LossLaw& law, AnalysisFindings& out) {
  std::vector<double> losses = laws::column(points, &laws::Point::loss);
  std::sort(losses.begin(), losses.end());
  const double target = losses[losses.size() / 2];
  AnalysisSection section{
      .heading = "Samples for a loss, and where to stop",
      .note = text("By the law of the loss: samples for a loss of ", fixed(target, 4),
                   " (the points' median), and samples beyond which a larger size uses compute "
                   "better.")};
  section.table = {
      .name = "samples",
      .columns = {{"parameters", true}, {"for the loss", true}, {"stop at", true}, {"longest run", true}}};
  std::vector<double> sizes = laws::column(points, &laws::Point::parameters);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  auto json = Json::array();
  const size_t step = std::max<size_t>(1, sizes.size() / 12);
  for (size_t i = 0; i < sizes.size(); i += step) {
    double longest = 0;
    for (const laws::Point& point : points)
      if (point.parameters == sizes[i]) longest = std::max(longest, point.samples);
    const double needed = laws::samples_for(law, sizes[i], target), best = laws::best_samples(law, sizes[i]);
    section.table.rows.push_back({compact(sizes[i]), std::isfinite(needed) ? compact(needed) : "never",
                                  compact(best), compact(longest)});
    json.push_back({{"parameters", sizes[i]},
                    {"samples_for_loss", std::isfinite(needed) ? Json(needed) : Json(nullptr)},
                    {"best_samples", best}});
  }
  out.json["samples"] = {{"loss", target}, {"sizes", json}};
  out.sections.push_back(std::move(section));
}

}  // namespace

void add_kaplan_sections(const laws::Points& points, AnalysisFindings& out) {
  const Json law = out.json["loss_law"];  // a copy: new keys move the others
  add_shapes(points.points, out);
  add_extrapolations(points.curves, out);
  add_against(points.points, &laws::Point::other_loss, "other_loss", "Loss on other data", out);
  add_against(points.points, &laws::Point::accuracy, "accuracy", "Accuracy over the loss", out);
  add_against(points.points, &laws::Point::noise_scale, "noise_scale", "Critical batch over the loss", out);
  add_samples(points.points,
              {law["A"].get<double>(), law["B"].get<double>(), law["E"].get<double>(),
               law["alpha"].get<double>(), law["beta"].get<double>()},
              out);
}

}  // namespace tessera::cli
