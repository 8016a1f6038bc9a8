// `tessera analyse landscape`: the loss along a line, over a plane or between two checkpoints (Li et al. 2018; Wang et al. 2024,
// Figure 10), and the Hessian's largest eigenvalue and trace.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>

#include "analysis/landscape.h"
#include "cli/analysis_input.h"
#include "cli/analysis_output.h"
#include "cli/command.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "io/file.h"
#include "io/json.h"
#include "report/matrix_chart.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseLandscapeOptions {
  AnalysisInput input;
  AnalysisOutput output;
  std::string to, state, kind = "line";
  int64_t points = 25, seed = 0, hessian = 0, probes = 0;
  double reach = 1;
};

std::vector<double> evenly(double low, double high, int64_t points) {
  std::vector<double> out;
  for (int64_t i = 0; i < points; ++i)
    out.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(points - 1));
  return out;
}

// Mean cross entropy of the images' own classes, batch by batch. In float64 attention is looked at, which makes it the composition of
// operations that have second derivatives.
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
                   " that the weights know: give a set with classes by --data");
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

// The points of a plane that a stopped run has left, and where it leaves them.
class PlaneState {
 public:
  PlaneState(const AnalyseLandscapeOptions& options, const AnalysedModel& model, const AnalysedImages& images)
      : path_(options.state) {
    request_ = {{"weights", model.file()},  {"data", images.source},  {"images", images.count()},
                {"points", options.points}, {"reach", options.reach}, {"seed", options.seed}};
    if (path_.empty() || !file_exists(path_)) return;
    const Json stored = parse_json<Json>(read_text(path_), path_);
    for (const auto& [key, value] : request_.items())
      if (!stored.contains(key) || stored[key] != value)
        fail_usage("--state ", path_, " is of another plane: its ", key, " is ",
                   stored.contains(key) ? stored[key].dump() : "missing", ", here it is ", value.dump());
    if (!stored.contains("losses") || !stored["losses"].is_array() ||
        std::ssize(stored["losses"]) > options.points * options.points)
      fail(path_, ": holds no losses of this plane");
    for (const Json& loss : stored["losses"])
      losses.push_back(loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  void save(const std::vector<double>& so_far) const {
    if (path_.empty()) return;
    Json state = request_;
    state["losses"] = so_far;
    write_text_atomic(path_, state.dump() + "\n");
  }
  std::vector<double> losses;

 private:
  std::string path_;
  Json request_;
};

// A bar that ends the work where the user does.
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

AnalysisSection plane_section(const std::vector<double>& alphas, const std::vector<double>& losses) {
  AnalysisSection section{
      .heading = "Loss over a plane",
      .note =
          "Two filter-normalised directions through the weights, which are in the middle; the shade is the "
          "logarithm of the loss."};
  report::Matrix matrix;
  section.table = {.name = "losses", .columns = {{"first", true}, {"second", true}, {"loss", true}}};
  for (const double alpha : alphas)
    matrix.rows.push_back(fixed(alpha, 2)), matrix.columns.push_back(fixed(alpha, 2));
  for (size_t i = 0; i < losses.size(); ++i) {
    matrix.values.push_back(std::log10(std::max(losses[i], 1e-12)));
    section.table.rows.push_back(
        {fixed(alphas[i / alphas.size()], 4), fixed(alphas[i % alphas.size()], 4), fixed(losses[i], 6)});
  }
  section.drawings = {same_drawing(report::matrix_chart(matrix, {.title = "Loss over a plane",
                                                                 .note = "log10 of the loss",
                                                                 .row_label = "first direction",
                                                                 .column_label = "second"}))};
  return section;
}

struct Curvature {
  double largest = 0, trace = 0;
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
  Watch watch("hessian", options.hessian);
  const auto power =
      analysis::power_iteration(objective, drawn(1000), options.hessian, 1e-4, how, watch.callback());
  watch.finish();
  if (interrupted()) stop();
  found.largest = power.rayleigh.back(), found.steps = std::ssize(power.rayleigh);
  if (options.probes > 0) {
    std::vector<torch::Tensor> signs;
    for (int64_t i = 0; i < options.probes; ++i)
      signs.push_back(drawn(2000 + static_cast<uint64_t>(i)).sign());
    for (const double estimate : analysis::trace_estimates(objective, torch::stack(signs), how))
      found.trace += estimate / static_cast<double>(options.probes);
  }
  return found;
}

void analyse(const AnalyseLandscapeOptions& options) {
  if (options.kind == "plane" && !options.to.empty())
    fail_usage("--to leads along a line: leave out --kind plane");
  if (!options.state.empty() && options.kind != "plane")
    fail_usage("--state keeps the points of --kind plane");
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  std::vector<torch::Tensor> other;
  if (!options.to.empty()) {
    AnalysisInput second = options.input;
    second.weights = options.to;
    other = parameters_of(AnalysedModel(second), model);
  }
  const AnalysedImages images = read_images(options.input, model);
  const ClassLoss loss(model, images, options.input.batch);
  const analysis::Objective& objective = loss.objective;
  const Interruptible stretch;
  AnalysisFindings out;
  out.title = "Loss landscape of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  const double here = analysis::loss_of(objective);
  out.facts = {{"loss", fixed(here, 4), "at the weights"}};
  out.json = {{"weights", model.file()}, {"data", images.source}, {"images", images.count()}, {"loss", here}};
  const auto direction = [&](uint64_t number) {
    return analysis::normalised(
        analysis::random_direction(objective.parameters, static_cast<uint64_t>(options.seed), number),
        objective.parameters);
  };
  std::vector<double> places = evenly(-options.reach, options.reach, options.points), losses;
  if (options.kind == "plane") {
    PlaneState state(options, model, images);
    Watch watch("plane", options.points * options.points);
    const auto bar = watch.callback();
    std::vector<double> so_far = state.losses;
    const analysis::Direction first = direction(0), second = direction(1);
    // A row at a time, so that a stopped run loses no more than one.
    const auto side = static_cast<size_t>(options.points);
    while (so_far.size() < side * side) {
      const size_t row_end = (so_far.size() / side + 1) * side;
      so_far = analysis::loss_plane(
          objective, first, second, places,
          [&](int64_t done, int64_t total) {
            return bar(done, total) && done < static_cast<int64_t>(row_end);
          },
          so_far);
      state.save(so_far);
      if (interrupted()) stop();
    }
    watch.finish();
    losses = so_far;
    out.sections.push_back(plane_section(places, losses));
  } else {
    Watch watch("line", options.points);
    if (!other.empty()) {
      places = evenly(-0.25, 1.25, options.points);
      losses = analysis::loss_between(objective, other, places, watch.callback());
      out.sections.push_back(
          line_section(places, losses, "Loss between two checkpoints", "share of the second"));
      out.json["to"] = options.to;
    } else {
      losses = analysis::loss_line(objective, direction(0), places, watch.callback());
      out.sections.push_back(
          line_section(places, losses, "Loss along a filter-normalised direction", "step"));
    }
    watch.finish();
    if (interrupted()) stop();
  }
  double rise = 0;
  for (const double value : losses) rise += (value - here) / static_cast<double>(losses.size());
  out.facts.push_back({"mean rise", fixed(rise, 4), "over what is drawn"});
  out.json["places"] = places, out.json["losses"] = losses, out.json["mean_rise"] = rise;
  if (options.hessian > 0) {
    const Curvature found = curvature_of(options, objective);
    out.facts.push_back(
        {"largest eigenvalue", fixed(found.largest, 4), text("after ", counted(found.steps, "step"))});
    AnalysisSection section{.heading = "Hessian", .note = "By " + found.how + "."};
    section.table = {.name = "hessian", .columns = {{"quantity"}, {"value", true}}};
    section.table.rows.push_back({"eigenvalue of largest magnitude", fixed(found.largest, 6)});
    out.json["hessian"] = {{"largest", found.largest}, {"steps", found.steps}, {"by", found.how}};
    if (options.probes > 0) {
      section.table.rows.push_back(
          {text("trace, from ", counted(options.probes, "probe")), fixed(found.trace, 6)});
      out.json["hessian"]["trace"] = found.trace;
    }
    out.sections.push_back(std::move(section));
  }
  writer.write(out);
}

}  // namespace

void add_analyse_landscape(Arguments& command, Action& action) {
  auto options = std::make_shared<AnalyseLandscapeOptions>();
  options->input.batch = 128;
  add_input_options(command, options->input, 512);
  command.add("--kind", options->kind, "line or plane").show_default().one_of({"line", "plane"});
  command.add("--to", options->to,
              "weights of a second checkpoint of the same architecture, at the line's other end");
  command.add("--points", options->points, "on each axis").show_default().range(2, 200);
  command.add("--reach", options->reach, "how far the axes go, in lengths of the filters")
      .show_default()
      .range(1e-6, 1000.0);
  command.add("--seed", options->seed, "other seeds draw other directions").show_default();
  command.add("--state", options->state,
              "file that keeps a plane's points, from which a stopped run goes on");
  command.add("--hessian", options->hessian, "steps of power iteration at most (0: no eigenvalue)")
      .show_default()
      .range(0, 10000);
  command.add("--probes", options->probes, "of the Hessian's trace (0: no trace)")
      .show_default()
      .range(0, 10000);
  add_output_options(command, options->output);
  action = [options] { analyse(*options); };
}

}  // namespace tessera::cli
