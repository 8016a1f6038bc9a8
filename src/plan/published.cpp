#include "plan/published.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "laws/minimise.h"

namespace tessera::plan {
namespace {

// The cells of a line, by column.
class Row {
 public:
  Row(const std::vector<std::string>& names, const std::vector<std::string>& cells, std::string where)
      : where_(std::move(where)) {
    if (names.size() != cells.size())
      fail_usage(where_, ": ", cells.size(), " cells, the header has ", names.size());
    for (size_t i = 0; i < names.size(); ++i) cells_[std::string(trim(names[i]))] = trim(cells[i]);
  }
  const std::string& word(const char* name) const {
    const auto found = cells_.find(name);
    if (found == cells_.end()) fail_usage(where_, ": no column '", name, "'");
    return found->second;
  }
  double number(const char* name, double standard) const {
    const std::string& cell = word(name);
    if (cell.empty()) return standard;
    const auto value = parse_double(cell);
    if (!value || !std::isfinite(*value) || *value < 0)
      fail_usage(where_, ": ", name, " is '", printable(cell, 40), "', must be a number of at least 0");
    return *value;
  }
  int64_t integer(const char* name, int64_t standard = 0) const {
    const double value = number(name, static_cast<double>(standard));
    if (value != std::floor(value) || value > 1e15) fail_usage(where_, ": ", name, " must be an integer");
    return static_cast<int64_t>(value);
  }

 private:
  std::string where_;
  std::map<std::string, std::string> cells_;
};

// The microbatch if a source does not give it: the largest power of two with at most 8192 tokens that divides
// the samples of a replica.
int64_t likely_microbatch(int64_t samples, int64_t sequence) {
  int64_t microbatch = 1;
  while (samples % (2 * microbatch) == 0 && 2 * microbatch * sequence <= 8192) microbatch *= 2;
  return microbatch;
}

// The number of parts of a pipeline stage if a source does not give it: at most four, of whole layers.
int64_t likely_parts(int64_t layers, int64_t pipeline) {
  return pipeline == 1 ? 1 : std::clamp<int64_t>(layers / pipeline, 1, 4);
}

Published read_point(const Row& row) {
  static const std::map<std::string, std::string> chip_names = {{"a100-40-sxm", "a100-40"},
                                                                {"a100-80-sxm", "a100-80"},
                                                                {"h100-sxm", "h100"},
                                                                {"h100-96-hbm2e-500w", "h100-500w"},
                                                                {"h200-sxm", "h200"}};
  const auto chip = chip_names.find(row.word("chip"));
  Published point{.id = row.word("id"), .source = row.word("source")};
  point.cluster = {find_chip(chip == chip_names.end() ? row.word("chip") : chip->second),
                   row.integer("chips", 1), row.integer("chips_per_node", 8)};
  point.model = {row.word("kind"),          row.integer("width"),    row.integer("heads"),
                 row.integer("kv_heads"),   row.integer("layers"),   row.integer("ffn"),
                 row.integer("vocabulary"), row.integer("sequence"), row.integer("tied") != 0};
  Layout& layout = point.layout;
  layout.data = row.integer("data", 1), layout.tensor = row.integer("tensor", 1);
  layout.pipeline = row.integer("pipeline", 1), layout.context = row.integer("context", 1);
  layout.zero = row.integer("zero"), layout.sequence_parallel = row.integer("sequence_parallel") != 0;
  layout.recompute = parse_recompute(row.word("recompute"));
  layout.flash = row.word("attention") == "flash";
  layout.virtual_stages = row.integer("virtual_stages", likely_parts(point.model.layers, layout.pipeline));
  point.arithmetic.batch = row.integer("batch", 1);
  layout.microbatch = row.integer(
      "microbatch", likely_microbatch(point.arithmetic.batch / layout.data, point.model.sequence));
  point.arithmetic.gradient_bytes = row.number("reduce_bytes", 4);
  point.arithmetic.overlapped_tensor = row.integer("overlapped") != 0;
  point.step_seconds = row.number("step_seconds", 0);
  point.memory_bytes = row.number("memory_gib", 0) * 1024 * 1024 * 1024;
  if (layout.chips() != point.cluster.chips || point.model.heads == 0 || point.step_seconds <= 0 ||
      layout.data * layout.microbatch > point.arithmetic.batch)
    fail_usage(point.id, ": the parts of its layout do not fit each other");
  return point;
}

}  // namespace

std::vector<Published> read_published(const std::string& path) {
  const std::vector<std::string> lines = split(read_text(path, uint64_t{16} << 20), '\n');
  const std::vector<std::string> names = split(trim(lines.at(0)), ',');
  std::vector<Published> points;
  for (size_t i = 1; i < lines.size(); ++i)
    if (!trim(lines[i]).empty())
      points.push_back(read_point(Row(names, split(lines[i], ','), text(path, " line ", i + 1))));
  if (points.size() < 30) fail_usage(path, ": ", points.size(), " points; the constants need at least 30");
  return points;
}

Prediction predict(const Published& point, const Constants& constants) {
  const StepCost cost =
      step_cost(shape_of(point.model), point.cluster, point.layout, point.arithmetic, constants);
  return {point.id, point.source, cost.time.sum(), point.step_seconds, cost.memory.sum(), point.memory_bytes};
}

Constants fit_constants(const std::vector<Published>& points, const Constants& start) {
  constexpr double kScale = 0.05, kPull = 0.02;
  std::vector<Shape> shapes;
  for (const Published& point : points) shapes.push_back(shape_of(point.model));
  const size_t fitted = start.values.size() - 1;  // without the guess for processors
  const auto constants_of = [&](std::span<const double> x) {
    Constants constants = start;
    for (size_t i = 0; i < fitted; ++i) constants.values[i] = start.values[i] * std::exp(x[i]);
    for (const Coefficient share : {Coefficient::hidden_data, Coefficient::link, Coefficient::network}) {
      double& value = constants.values[static_cast<size_t>(share)];
      value = std::min(value, 1.0);
    }
    return constants;
  };
  const laws::Objective objective = laws::with_gradient(
      [&](std::span<const double> x) {
        const Constants constants = constants_of(x);
        double sum = 0;
        for (size_t i = 0; i < points.size(); ++i) {
          const Published& point = points[i];
          const double seconds =
              step_cost(shapes[i], point.cluster, point.layout, point.arithmetic, constants).time.sum();
          const double size = std::abs(std::log(seconds / point.step_seconds));
          sum += size <= kScale ? 0.5 * size * size / kScale : size - 0.5 * kScale;
        }
        for (const double value : x) sum += kPull * value * value;
        return sum;
      },
      1e-5);
  return constants_of(laws::minimise(objective, std::vector<double>(fitted, 0.0), 200, 1e-7).x);
}

std::vector<Prediction> cross_validate(const std::vector<Published>& points, int folds) {
  std::vector<Prediction> predictions(points.size());
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<Published> others;
    for (size_t i = 0; i < points.size(); ++i)
      if (static_cast<int>(i % static_cast<size_t>(folds)) != fold) others.push_back(points[i]);
    const Constants constants = fit_constants(others);
    for (size_t i = 0; i < points.size(); ++i)
      if (static_cast<int>(i % static_cast<size_t>(folds)) == fold)
        predictions[i] = predict(points[i], constants);
  }
  return predictions;
}

Errors errors_of(const std::vector<Prediction>& predictions) {
  std::vector<double> sizes;
  for (const Prediction& prediction : predictions) sizes.push_back(std::abs(prediction.error()));
  std::sort(sizes.begin(), sizes.end());
  if (sizes.empty()) return {};
  const auto below = [&](double bound) {
    return static_cast<double>(std::upper_bound(sizes.begin(), sizes.end(), bound) - sizes.begin()) /
           static_cast<double>(sizes.size());
  };
  return {sizes[sizes.size() / 2], below(0.1), below(0.25)};
}

}  // namespace tessera::plan
