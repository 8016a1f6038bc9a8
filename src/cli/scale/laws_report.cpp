#include "cli/scale/reports.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "laws/frontier.h"
#include "laws/kaplan.h"
#include "report/markup.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::Interval;
using laws::LossLaw;
using report::compact;

std::string interval_text(const Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return "";
  return text(compact(interval.low), " to ", compact(interval.high));
}

Json interval_json(const Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return nullptr;
  return {interval.low, interval.high};
}

// All fits of one command.
struct Fits {
  laws::LossFit loss{};
  std::vector<LossLaw> resampled{};
  laws::FlopPerUnit unit{};
};

struct Quantity {
  const char* name;
  double (*of)(const LossLaw&);
};
constexpr Quantity kQuantities[] = {
    {"E", [](const LossLaw& law) { return law.E; }},
    {"A", [](const LossLaw& law) { return law.A; }},
    {"B", [](const LossLaw& law) { return law.B; }},
    {"alpha", [](const LossLaw& law) { return law.alpha; }},
    {"beta", [](const LossLaw& law) { return law.beta; }},
};

void add_loss_law(const Fits& fits, LawsFindings& findings) {
  AnalysisSection section{
      .heading = "Loss over size and samples",
      .note =
          "L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, approach 3), with 90 % bootstrap "
          "intervals. A and B depend on the exponents and are badly determined alone."};
  section.table = {.name = "loss_law", .columns = {{"parameter"}, {"value", true}, {"interval", true}}};
  Json& json = findings.out.json["loss_law"];
  json["objective"] = fits.loss.objective;
  for (const Quantity& quantity : kQuantities) {
    const double value = quantity.of(fits.loss.law);
    const Interval interval = laws::interval_of(fits.resampled, quantity.of);
    section.table.rows.push_back({quantity.name, compact(value, 5), interval_text(interval)});
    json[quantity.name] = value;
    json[text(quantity.name, "_interval")] = interval_json(interval);
    const bool alone = quantity.name[0] == 'A' || quantity.name[0] == 'B';
    if (!alone && interval.factor() > 2)
      findings.warnings.push_back(text("the points do not determine ", quantity.name, ": ",
                                       compact(interval.low), " to ", compact(interval.high), " (90 %)"));
  }
  findings.out.sections.push_back(std::move(section));
}

// A law without an irreducible loss extrapolates too low.
void warn_without_floor(const laws::Points& points, const Fits& fits, LawsFindings& findings) {
  const std::vector<double> losses = laws::column(points.points, &laws::Point::loss);
  if (fits.loss.law.E < 1e-3 * *std::min_element(losses.begin(), losses.end()))
    findings.warnings.push_back(
        "the points do not determine E: the best law has no floor, and extrapolates too low");
}

AnalysisSection exponents_section() {
  AnalysisSection section{
      .heading = "Best size over compute",
      .note =
          "Exponents of the best number of parameters and of samples over compute, by the "
          "three approaches of Hoffmann et al. 2022; 90 % bootstrap intervals."};
  section.table = {
      .name = "exponents",
      .columns = {
          {"approach"}, {"parameters", true}, {"interval", true}, {"samples", true}, {"interval", true}}};
  return section;
}

void add_exponents(const laws::Points& points, const Fits& fits, LawsFindings& findings) {
  AnalysisSection section = exponents_section();
  Json& json = findings.out.json["exponents"];
  const auto add = [&](const char* name, double size, const Interval& of_size, double samples,
                       const Interval& of_samples) {
    section.table.rows.push_back(
        {name, fixed(size, 4), interval_text(of_size), fixed(samples, 4), interval_text(of_samples)});
    json[name] = {{"parameters", size},
                  {"parameters_interval", interval_json(of_size)},
                  {"samples", samples},
                  {"samples_interval", interval_json(of_samples)}};
  };
  const auto attempt = [&](const char* name, const std::function<laws::Frontier()>& fit) {
    try {
      const laws::Frontier frontier = fit();
      add(name, frontier.size_exponent, frontier.size_interval, frontier.samples_exponent,
          frontier.samples_interval);
    } catch (const Error& error) {
      findings.warnings.push_back(error.what());
    }
  };
  attempt("1 envelope", [&] {
    return laws::fit_envelope(points.curves.size() >= 2 ? points.curves : laws::curves_of(points.points));
  });
  attempt("2 equal compute", [&] { return laws::fit_iso_flop(points.points); });
  const auto size = [](const LossLaw& law) { return law.size_exponent(); };
  const auto samples = [](const LossLaw& law) { return 1 - law.size_exponent(); };
  add("3 law of the loss", size(fits.loss.law), laws::interval_of(fits.resampled, size),
      samples(fits.loss.law), laws::interval_of(fits.resampled, samples));
  findings.out.sections.push_back(std::move(section));
}

// Adds the row of one budget. Returns its JSON.
Json add_budget(double flop, const Fits& fits, AnalysisSection& section, LawsFindings& findings) {
  const laws::Allocation best = laws::best_allocation(fits.loss.law, flop, fits.unit.median);
  const auto interval = [&](double laws::Allocation::*member) {
    return laws::interval_of(fits.resampled, [&](const LossLaw& law) {
      return laws::best_allocation(law, flop, fits.unit.median).*member;
    });
  };
  const Interval parameters = interval(&laws::Allocation::parameters),
                 samples = interval(&laws::Allocation::samples), loss = interval(&laws::Allocation::loss);
  section.table.rows.push_back({compact(flop), compact(best.parameters), interval_text(parameters),
                                compact(best.samples), interval_text(samples), fixed(best.loss, 4),
                                interval_text(loss)});
  if (parameters.factor() > 2)
    findings.warnings.push_back(text("the points do not determine the best size for ", compact(flop),
                                     " FLOP: ", interval_text(parameters), " parameters (90 %)"));
  return {{"flop", flop},
          {"parameters", best.parameters},
          {"parameters_interval", interval_json(parameters)},
          {"samples", best.samples},
          {"samples_interval", interval_json(samples)},
          {"loss", best.loss},
          {"loss_interval", interval_json(loss)}};
}

void add_budgets(const std::vector<double>& budgets, const Fits& fits, LawsFindings& findings) {
  AnalysisSection section{.heading = "Best size and samples for a budget",
                          .note = text("With ", compact(fits.unit.median),
                                       " FLOP for a parameter and a sample, the points' median.")};
  section.table = {.name = "budgets",
                   .columns = {{"FLOP", true},
                               {"parameters", true},
                               {"interval", true},
                               {"samples", true},
                               {"interval", true},
                               {"loss", true},
                               {"interval", true}}};
  auto list = Json::array();
  for (const double flop : budgets) list.push_back(add_budget(flop, fits, section, findings));
  findings.out.json["budgets"] = list;
  findings.out.sections.push_back(std::move(section));
}

// Points that were held out, next to the law's predictions.
void add_held_out(const std::vector<laws::Point>& fitted, const std::vector<laws::Point>& points,
                  const Fits& fits, AnalysisFindings& out) {
  if (points.empty()) return;
  const std::vector<double> flop = laws::column(fitted, &laws::Point::flop);
  const double most = *std::max_element(flop.begin(), flop.end());
  AnalysisSection section{
      .heading = "Held-out points",
      .note = "Compute is over the largest of the fitted points; 90 % bootstrap intervals."};
  section.table = {.name = "held_out",
                   .columns = {{"point"},
                               {"compute", true},
                               {"predicted", true},
                               {"interval", true},
                               {"measured", true},
                               {"error", true}}};
  auto list = Json::array();
  for (const laws::Point& point : points) {
    const auto loss = [&](const LossLaw& law) { return law.loss(point.parameters, point.samples); };
    const double predicted = loss(fits.loss.law);
    const Interval interval = laws::interval_of(fits.resampled, loss);
    section.table.rows.push_back({point.name, text(fixed(point.flop / most, 2), "x"), fixed(predicted, 4),
                                  text(fixed(interval.low, 4), " to ", fixed(interval.high, 4)),
                                  fixed(point.loss, 4),
                                  text(fixed(100 * (predicted / point.loss - 1), 1), " %")});
    list.push_back({{"name", point.name},
                    {"compute", point.flop / most},
                    {"predicted", predicted},
                    {"interval", interval_json(interval)},
                    {"measured", point.loss}});
  }
  out.json["held_out"] = list;
  out.sections.push_back(std::move(section));
}

// Draws the losses over one quantity, a curve for each size.
AnalysisSection charts_of(const std::vector<laws::Point>& points) {
  AnalysisSection section{.heading = "Losses",
                          .note = "A curve for each size, over logarithms to the base 10."};
  std::map<double, std::vector<laws::Point>> sizes;
  for (const laws::Point& point : points) sizes[point.parameters].push_back(point);
  const auto chart = [&](const char* label, double laws::Point::*member) {
    std::vector<report::Curve> curves;
    for (auto& [parameters, own] : sizes) {
      std::sort(own.begin(), own.end(),
                [&](const laws::Point& a, const laws::Point& b) { return a.*member < b.*member; });
      report::Curve curve{.name = human_count(parameters)};
      for (const laws::Point& point : own) curve.points.push_back({std::log10(point.*member), point.loss});
      curves.push_back(std::move(curve));
      if (curves.size() == 12) break;
    }
    section.drawings.push_back(line_drawing(
        curves, {.title = text("Loss over ", label), .x_label = text("log10 ", label), .y_label = "loss"}));
  };
  chart("FLOP", &laws::Point::flop);
  chart("samples", &laws::Point::samples);
  return section;
}

void add_kaplan(const laws::Points& points, AnalysisFindings& out) {
  const laws::KaplanLaws laws_of = laws::fit_kaplan(points.points);
  const laws::JointLaw joint = laws::fit_joint_law(points.points);
  AnalysisSection section{
      .heading = "Power laws",
      .note =
          "L(x) = (scale / x)^exponent (Kaplan et al. 2020): of parameters from the longest "
          "training of each size, of samples from the best size, of compute from the least "
          "loss so far; and in parameters and samples together."};
  section.table = {.name = "power_laws",
                   .columns = {{"quantity"}, {"scale", true}, {"exponent", true}, {"interval", true}}};
  Json& json = out.json["power_laws"];
  const auto add = [&](const char* name, const laws::PowerLaw& law) {
    if (law.scale == 0) return;
    section.table.rows.push_back(
        {name, compact(law.scale), compact(law.exponent), interval_text(law.interval)});
    json[name] = {
        {"scale", law.scale}, {"exponent", law.exponent}, {"interval", interval_json(law.interval)}};
  };
  add("parameters", laws_of.parameters);
  add("samples", laws_of.samples);
  add("compute", laws_of.flop);
  add("critical batch", laws::fit_critical_batch(points.points));
  section.table.rows.push_back({"joint, parameters", compact(joint.n_c), compact(joint.alpha_n), ""});
  section.table.rows.push_back({"joint, samples", compact(joint.d_c), compact(joint.alpha_d), ""});
  json["joint"] = {{"n_c", joint.n_c},
                   {"alpha_n", joint.alpha_n},
                   {"d_c", joint.d_c},
                   {"alpha_d", joint.alpha_d},
                   {"objective", joint.objective}};
  out.sections.push_back(std::move(section));
}

}  // namespace

LawsFindings find_laws(const laws::Points& points, const std::vector<laws::Point>& held_out,
                       std::vector<double> budgets, int resamples) {
  LawsFindings findings;
  const size_t sizes = laws::distinct(laws::column(points.points, &laws::Point::parameters)),
               lengths = laws::distinct(laws::column(points.points, &laws::Point::samples));
  if (sizes == 2) findings.warnings.push_back("two sizes do not determine alpha: a law needs three or more");
  if (lengths == 2)
    findings.warnings.push_back("two lengths do not determine beta: a law needs three or more");
  Fits fits{.loss = laws::fit_loss_law(points.points), .unit = laws::flop_per_unit(points.points)};
  fits.resampled = laws::bootstrap(points.points, fits.loss, resamples);
  if (fits.unit.spread > 1.5)
    findings.warnings.push_back(text("FLOP for a parameter and a sample differ by a factor of ",
                                     compact(fits.unit.spread), " between points; budgets use the median"));
  if (budgets.empty()) {
    const std::vector<double> flop = laws::column(points.points, &laws::Point::flop);
    const double most = *std::max_element(flop.begin(), flop.end());
    budgets = {most, 10 * most};
  }
  findings.out.title = "Scaling laws";
  findings.out.subtitle = text(points.points.size(), " points, ", sizes, " sizes, ", lengths, " lengths");
  findings.out.json = {{"points", points.points.size()}, {"sizes", sizes}, {"lengths", lengths}};
  add_budgets(budgets, fits, findings);
  add_held_out(points.points, held_out, fits, findings.out);
  add_exponents(points, fits, findings);
  add_loss_law(fits, findings);
  warn_without_floor(points, fits, findings);
  add_kaplan(points, findings.out);
  findings.out.sections.push_back(charts_of(points.points));
  add_kaplan_sections(points, findings.out);
  return findings;
}

}  // namespace tessera::cli
