// `tessera analyse landscape`: the loss along a line or over a plane, between checkpoints or in random directions (Li et al. 2018; Wang
// et al. 2024, Figure 10; Garipov et al. 2018), and the Hessian's eigenvalues and trace.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "analysis/landscape.h"
#include "cli/analyse/landscape_plane.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "io/files/json.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseLandscapeOptions {
  AnalysisInput input = {512, 128};
  AnalysisOutput output;
  std::vector<std::string> to;
  std::string state, kind = "line";
  int64_t points = 25, seed = 0, hessian = 0, probes = 0;
  double reach = 1;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("kind", kind, {.choices = {"line", "plane"}}, "shape of the section");
    v("to", to,
      "weights of the same architecture at the line's other end; two, for a plane through all three");
    v("points", points, between(2, 200), "points on each axis");
    v("reach", reach, between(1e-6, 1000), "length of the axes, in norms of the filters");
    v("seed", seed, "seed of the directions");
    v("state", state, {.writes = Writes::cache},
      "file of the computed points, from which an interrupted run continues");
    v("hessian", hessian, between(0, 10000), "most steps of power iteration (0: no eigenvalue)");
    v("probes", probes, between(0, 10000), "probes of the Hessian's trace (0: no trace)");
    v("output", output, "");
  }
};

std::vector<double> evenly(double low, double high, int64_t points) {
  std::vector<double> out;
  for (int64_t i = 0; i < points; ++i)
    out.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(points - 1));
  return out;
}

// Mean cross entropy of the images' own classes, batch by batch. In float64 a tap on attention replaces the
// fused kernel with operations that have second derivatives.
class ClassLoss {
 public:
  ClassLoss(const AnalysedModel& model, const AnalysedImages& images, int64_t batch)
      : model_(model), images_(images), batch_(batch), labels_(torch::tensor(images.labels, torch::kInt64)) {
    const int64_t classes = model.classifier().classes();
    for (size_t i = 0; i < images.labels.size(); ++i)
      if (images.labels[i] < 0 || images.labels[i] >= classes)
        fail_usage(images.names[i], ": its class is ",
                   images.labels[i] < 0 ? "not known" : text(images.labels[i]),
                   ", and the loss needs one of the ", classes,
                   " of the weights: give a set with classes by --data");
    objective.parameters = model.backbone().parameters();
    objective.loss = [this] { return loss(); };
    for (torch::Tensor& parameter : objective.parameters) parameter.set_requires_grad(true);
    composed_ = objective.parameters.at(0).scalar_type() == torch::kFloat64;
  }
  ClassLoss(const ClassLoss&) = delete;
  analysis::Objective objective;

 private:
  torch::Tensor loss() const {
    torch::Tensor sum;
    for (int64_t first = 0; first < images_.count(); first += batch_) {
      const torch::Tensor labels = labels_.slice(0, first, first + batch_).to(images_.images.device());
      models::Taps taps;
      taps.wanted = [this](const std::string& name) { return composed_ && name.ends_with(".attention"); };
      models::Context context;
      context.taps = &taps;
      const torch::Tensor scores =
          model_.classifier().forward(images_.images.slice(0, first, first + batch_), context);
      const torch::Tensor part =
          torch::cross_entropy_loss(scores, labels, {}, at::Reduction::Sum).to(torch::kFloat64);
      sum = sum.defined() ? sum + part : part;
    }
    return sum / static_cast<double>(images_.count());
  }
  const AnalysedModel& model_;
  const AnalysedImages& images_;
  int64_t batch_;
  torch::Tensor labels_;
  bool composed_ = false;
};

// The other checkpoint's values, in the order of this model's parameters.
std::vector<torch::Tensor> parameters_of(const AnalysedModel& other, const AnalysedModel& model) {
  const auto own = model.backbone().named_parameters(), others = other.backbone().named_parameters();
  std::vector<torch::Tensor> out;
  for (const auto& item : own) {
    const torch::Tensor* found = others.find(item.key());
    if (!found || found->sizes() != item.value().sizes())
      fail_usage("no line leads from ", model.file(), " to ", other.file(), ": ", item.key(), " is ",
                 text(item.value().sizes()), " here and ",
                 found ? text(found->sizes()) : std::string("missing"),
                 " there; both must be one architecture");
    out.push_back(found->detach());
  }
  if (others.size() != own.size())
    fail_usage("no line leads from ", model.file(), " to ", other.file(), ": the second has ", others.size(),
               " parameters, the first ", own.size());
  return out;
}

// A progress bar that ends the work on Ctrl-C.
class Watch {
 public:
  Watch(const std::string& label, int64_t total) : line_(std::cerr, options_of(label, total)) {}
  analysis::Progress callback() {
    return [this](int64_t done, int64_t) {
      line_.update(done, {});
      return !interrupted();
    };
  }
  void finish() { line_.finish(); }

 private:
  static ProgressLine::Options options_of(const std::string& label, int64_t total) {
    ProgressLine::Options options;
    options.label = label, options.total = total;
    return options;
  }
  ProgressLine line_;
};

[[noreturn]] void stop() { throw Error(ErrorKind::interrupted, "interrupted"); }

AnalysisSection line_section(const std::vector<double>& places, const std::vector<double>& losses,
                             const std::string& heading, const std::string& label) {
  AnalysisSection section{.heading = heading};
  report::Curve curve{.name = "loss"};
  section.table = {.name = "losses", .columns = {{label, true}, {"loss", true}}};
  for (size_t i = 0; i < losses.size(); ++i) {
    curve.points.push_back({places[i], losses[i]});
    section.table.rows.push_back({fixed(places[i], 4), fixed(losses[i], 6)});
  }
  section.drawings = {line_drawing({curve}, {.title = heading, .x_label = label, .y_label = "loss"})};
  return section;
}

struct Curvature {
  double magnitude = 0, largest = 0, trace = 0;  // the eigenvalue of largest magnitude, the largest one
  int64_t steps = 0;
  std::string how;
};

Curvature curvature_of(const AnalyseLandscapeOptions& options, const analysis::Objective& objective) {
  const bool wide = objective.parameters.at(0).scalar_type() == torch::kFloat64;
  const auto how = wide ? analysis::HessianProduct::exact : analysis::HessianProduct::differences;
  Curvature found{.how = wide
                             ? "second derivatives of the composition in fp64"
                             : "differences of gradients, since the fused kernels have no second derivative"};
  const auto drawn = [&](uint64_t number) {
    return analysis::flat(
        analysis::random_direction(objective.parameters, static_cast<uint64_t>(options.seed), number));
  };
  const auto eigenvalue = [&](uint64_t start, double shift) {
    Watch watch("hessian", options.hessian);
    const auto power = analysis::power_iteration(objective, drawn(start), options.hessian, 1e-4, how,
                                                 watch.callback(), shift);
    watch.finish();
    if (interrupted()) stop();
    found.steps += std::ssize(power.rayleigh);
    return power.rayleigh.back();
  };
  found.magnitude = found.largest = eigenvalue(1000, 0);
  // If it is negative, it is the smallest, and the largest is the one farthest from it.
  if (found.magnitude < 0) found.largest = eigenvalue(1001, found.magnitude);
  if (options.probes > 0) {
    std::vector<torch::Tensor> signs;
    for (int64_t i = 0; i < options.probes; ++i)
      signs.push_back(drawn(2000 + static_cast<uint64_t>(i)).sign());
    for (const double estimate : analysis::trace_estimates(objective, torch::stack(signs), how))
      found.trace += estimate / static_cast<double>(options.probes);
  }
  return found;
}

void add_curvature(const AnalyseLandscapeOptions& options, const analysis::Objective& objective,
                   AnalysisFindings& out) {
  const Curvature found = curvature_of(options, objective);
  const std::string after = text("after ", counted(found.steps, "step"));
  out.facts.push_back({"largest eigenvalue", fixed(found.largest, 4), after});
  out.facts.push_back({"largest in magnitude", fixed(found.magnitude, 4), after});
  AnalysisSection section{.heading = "Hessian", .note = "By " + found.how + "."};
  section.table = {.name = "hessian", .columns = {{"quantity"}, {"value", true}}};
  section.table.rows.push_back({"eigenvalue of largest magnitude", fixed(found.magnitude, 6)});
  section.table.rows.push_back({"largest eigenvalue", fixed(found.largest, 6)});
  out.json["hessian"] = {{"largest", found.largest},
                         {"largest_magnitude", found.magnitude},
                         {"steps", found.steps},
                         {"by", found.how}};
  if (options.probes > 0) {
    section.table.rows.push_back(
        {text("trace, from ", counted(options.probes, "probe")), fixed(found.trace, 6)});
    out.json["hessian"]["trace"] = found.trace;
  }
  out.sections.push_back(std::move(section));
}

void check_request(const AnalyseLandscapeOptions& options) {
  const bool plane = options.kind == "plane";
  if (options.to.size() > 2)
    fail_usage("--to names ", options.to.size(),
               " checkpoints, at most two: a line leads to one, a plane goes through --weights and two");
  if (options.to.size() == 2 && !plane)
    fail_usage(
        "--to names two checkpoints, and a line leads to one: a plane through all three needs --kind "
        "plane");
  if (options.to.size() == 1 && plane)
    fail_usage(
        "--to names one checkpoint, and a plane goes through three: name a second one, or leave out "
        "--kind plane for the line to it");
  if (!options.state.empty() && !plane) fail_usage("--state keeps the points of --kind plane");
}

// The inputs of all parts of the analysis.
struct Landscape {
  const AnalyseLandscapeOptions& options;
  const AnalysedModel& model;
  const AnalysedImages& images;
  const analysis::Objective& objective;
  std::vector<std::vector<torch::Tensor>> others;  // the weights of each --to
  double here = 0;                                 // the loss at the weights

  // Returns a random direction, scaled to the lengths of the filters.
  analysis::Direction direction(uint64_t number) const {
    return analysis::normalised(
        analysis::random_direction(objective.parameters, static_cast<uint64_t>(options.seed), number),
        objective.parameters);
  }
};

// Returns evenly spaced points over a range of that length around the middle of low and high.
std::vector<double> around(double low, double high, double length, int64_t points) {
  const double middle = (low + high) / 2;
  return evenly(middle - length / 2, middle + length / 2, points);
}

// Returns the directions of the plane; `plane` gets its points and checkpoints.
std::pair<analysis::Direction, analysis::Direction> directions_of(const Landscape& all, LossPlane& plane) {
  const AnalyseLandscapeOptions& options = all.options;
  if (all.others.empty()) {
    plane.first = plane.second = evenly(-options.reach, options.reach, options.points);
    return {all.direction(0), all.direction(1)};
  }
  const auto through = analysis::plane_through(all.objective.parameters, all.others[0], all.others[1]);
  if (!through)
    fail_usage("no one plane goes through ", all.model.file(), ", ", options.to[0], " and ", options.to[1],
               ": they are on one line, or two of them are the same weights");
  // Cells are squares, with a margin of a quarter of the extent on every side.
  const double left = std::min(0.0, through->c_first), right = std::max(through->b_first, through->c_first);
  const double length = 1.5 * std::max(right - left, through->c_second);
  plane.first = around(left, right, length, options.points);
  plane.second = around(0, through->c_second, length, options.points);
  plane.marks = {{"A", all.model.file(), 0, 0, all.here},
                 {"B", options.to[0], through->b_first, 0},
                 {"C", options.to[1], through->c_first, through->c_second}};
  for (size_t i = 1; i < plane.marks.size(); ++i)
    plane.marks[i].loss = analysis::loss_plane(all.objective, through->first, through->second,
                                               {plane.marks[i].first}, {plane.marks[i].second})
                              .at(0);
  return {through->first, through->second};
}

// The inputs that determine the losses of a plane, for --state.
Json plane_key(const Landscape& all) {
  const AnalyseLandscapeOptions& options = all.options;
  Json key = losses_key(all.model, all.images, options.input.precision);
  key["points"] = options.points;
  if (all.others.empty()) {
    key["reach"] = options.reach, key["seed"] = options.seed;
    return key;
  }
  key["to"] = options.to;
  for (const auto& weights : all.others) key["to_checksums"].push_back(checksum_of_tensors(weights));
  return key;
}

std::vector<double> draw_plane(const Landscape& all, AnalysisFindings& out) {
  const auto side = static_cast<size_t>(all.options.points);
  const PlaneState state(all.options.state, plane_key(all), side * side);
  LossPlane plane;
  const auto [first, second] = directions_of(all, plane);
  Watch watch("plane", all.options.points * all.options.points);
  const auto bar = watch.callback();
  plane.losses = state.losses();
  // Computes one row at a time, so that an interrupted run loses at most one.
  while (plane.losses.size() < side * side) {
    const size_t row_end = (plane.losses.size() / side + 1) * side;
    plane.losses = analysis::loss_plane(
        all.objective, first, second, plane.first, plane.second,
        [&](int64_t done, int64_t total) { return bar(done, total) && done < static_cast<int64_t>(row_end); },
        plane.losses);
    state.save(plane.losses);
    if (interrupted()) stop();
  }
  watch.finish();
  for (AnalysisSection& section : plane_sections(plane)) out.sections.push_back(std::move(section));
  out.json["places"] = plane.first;
  if (!plane.marks.empty()) {
    out.json["second_places"] = plane.second;
    out.json["to"] = all.options.to;
    for (const PlaneMark& mark : plane.marks)
      out.json["checkpoints"].push_back({{"mark", mark.letter},
                                         {"weights", mark.weights},
                                         {"first", mark.first},
                                         {"second", mark.second},
                                         {"loss", mark.loss}});
  }
  return plane.losses;
}

std::vector<double> draw_line(const Landscape& all, AnalysisFindings& out) {
  const AnalyseLandscapeOptions& options = all.options;
  Watch watch("line", options.points);
  std::vector<double> places, losses;
  if (!all.others.empty()) {
    places = evenly(-0.25, 1.25, options.points);
    losses = analysis::loss_between(all.objective, all.others[0], places, watch.callback());
    out.sections.push_back(
        line_section(places, losses, "Loss between two checkpoints", "share of the second"));
    out.json["to"] = options.to[0];
  } else {
    places = evenly(-options.reach, options.reach, options.points);
    losses = analysis::loss_line(all.objective, all.direction(0), places, watch.callback());
    out.sections.push_back(line_section(places, losses, "Loss along a filter-normalised direction", "step"));
  }
  watch.finish();
  if (interrupted()) stop();
  out.json["places"] = places;
  return losses;
}

void analyse(const AnalyseLandscapeOptions& options) {
  check_request(options);
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  std::vector<std::vector<torch::Tensor>> others;
  for (const std::string& weights : options.to) {
    AnalysisInput other = options.input;
    other.weights = weights;
    others.push_back(parameters_of(AnalysedModel(other), model));
  }
  const AnalysedImages images = read_images(options.input, model);
  const ClassLoss loss(model, images, options.input.batch);
  const Interruptible stretch;
  const double here = analysis::loss_of(loss.objective);
  const Landscape all{options, model, images, loss.objective, std::move(others), here};
  AnalysisFindings out;
  out.title = "Loss landscape of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  out.facts = {{"loss", fixed(here, 4), "at the weights"}};
  out.json = {{"weights", model.file()}, {"data", images.source}, {"images", images.count()}, {"loss", here}};
  const std::vector<double> losses = options.kind == "plane" ? draw_plane(all, out) : draw_line(all, out);
  double rise = 0;
  for (const double value : losses) rise += (value - here) / static_cast<double>(losses.size());
  out.facts.push_back({"mean rise", fixed(rise, 4), "over what is drawn"});
  out.json["losses"] = losses, out.json["mean_rise"] = rise;
  if (options.hessian > 0) add_curvature(options, loss.objective, out);
  writer.write(out);
}

}  // namespace

void add_analyse_landscape(Arguments& command, Action& action) {
  action = with_options<AnalyseLandscapeOptions>(command, analyse);
}

}  // namespace tessera::cli
