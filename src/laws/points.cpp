#include "laws/points.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::laws {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr size_t kMostPoints = 100000, kLeastPoints = 6;

// The columns of a file by name.
class Columns {
 public:
  Columns(const std::vector<std::string>& names, const std::string& path) : path_(path) {
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name = lower(trim(names[i]));
      if (!places_.emplace(name, i).second) fail_usage(path, ": two columns '", printable(name), "'");
    }
    for (const char* needed : {"parameters", "loss"})
      if (!places_.contains(needed)) fail_usage(path, ": no column '", needed, "'; it has ", list());
    if (!first_of({"samples", "tokens"}) && !first_of({"training_flop", "flop"}))
      fail_usage(path, ": no column 'samples', 'tokens' or 'training_flop'; it has ", list());
  }

  size_t count() const { return places_.size(); }

  std::optional<std::string> first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (places_.contains(name)) return name;
    return {};
  }

  // Returns a positive number, or nothing if there is no such column or its cell is empty.
  std::optional<double> number(const std::vector<std::string>& cells,
                               std::initializer_list<const char*> names, size_t line) const {
    const auto name = first_of(names);
    if (!name) return {};
    const auto cell = trim(cells.at(places_.at(*name)));
    if (cell.empty()) return {};
    const auto value = parse_double(cell);
    if (!value || !std::isfinite(*value))
      fail_usage(path_, " line ", line, ": ", *name, " is '", printable(cell, 40), "', must be a number");
    if (!(*value > 0)) fail_usage(path_, " line ", line, ": ", *name, " = ", cell, ", must be above 0");
    return value;
  }

  std::string name(const std::vector<std::string>& cells) const {
    const auto column = first_of({"name", "run"});
    return column ? std::string(trim(cells.at(places_.at(*column)))) : "";
  }

 private:
  std::string list() const {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) names.push_back(printable(name, 40));
    names.resize(std::min<size_t>(names.size(), 12));
    return join(names, ", ");
  }

  std::string path_;
  std::map<std::string, size_t> places_;
};

Point read_point(const Columns& columns, const std::vector<std::string>& cells, const std::string& path,
                 size_t line) {
  const auto parameters = columns.number(cells, {"parameters"}, line),
             loss = columns.number(cells, {"loss"}, line),
             samples = columns.number(cells, {"samples", "tokens"}, line),
             flop = columns.number(cells, {"training_flop", "flop"}, line);
  if (!parameters || !loss || (!samples && !flop))
    fail_usage(path, " line ", line, ": an empty cell; parameters, loss and samples or flop are needed");
  Point point{.name = columns.name(cells), .parameters = *parameters, .loss = *loss};
  if (point.name.empty()) point.name = text("line ", line);
  point.samples = samples ? *samples : *flop / (6 * *parameters);
  point.flop = flop ? *flop : 6 * *parameters * *samples;
  const auto optional = [&](double& field, const char* name) {
    if (const auto value = columns.number(cells, {name}, line)) field = *value;
  };
  optional(point.unique_samples, "unique_samples");
  optional(point.other_loss, "other_loss");
  optional(point.accuracy, "accuracy");
  optional(point.noise_scale, "noise_scale");
  return point;
}

// Returns ranks from 0; equal values share their mean rank.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) out[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
    begin = end;
  }
  return out;
}

}  // namespace

Points read_points(const std::string& path) {
  const std::vector<std::string> lines = split(read_text(path, kMostBytes), '\n');
  if (lines.empty() || trim(lines[0]).empty()) fail_usage(path, ": no header line");
  const std::vector<std::string> names = split(trim(lines[0]), ',');
  const Columns columns(names, path);
  Points out;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (trim(lines[i]).empty()) continue;
    const std::vector<std::string> cells = split(trim(lines[i]), ',');
    if (cells.size() != names.size())
      fail_usage(path, " line ", i + 1, ": ", cells.size(), " cells, the header has ", names.size());
    if (out.points.size() == kMostPoints) fail_usage(path, ": more than ", kMostPoints, " points");
    out.points.push_back(read_point(columns, cells, path, i + 1));
  }
  return out;
}

void check_points(const std::vector<Point>& points, const std::string& where) {
  if (points.size() < kLeastPoints)
    fail_usage(where, ": ", points.size(), " points; a law needs at least ", kLeastPoints);
  if (distinct(column(points, &Point::parameters)) < 2)
    fail_usage(where, ": all points have ", human_count(points[0].parameters),
               " parameters; a law needs several sizes");
  if (distinct(column(points, &Point::samples)) < 2)
    fail_usage(where, ": all points have ", human_count(points[0].samples),
               " samples; a law needs several lengths");
  const double correlation = rank_correlation(column(points, &Point::flop), column(points, &Point::loss));
  if (correlation > 0)
    fail_usage(where, ": losses rise with compute (rank correlation ", fixed(correlation, 2),
               "); is the column a loss?");
}

size_t distinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t count = 0;
  double last = 0;
  for (const double value : values)
    if (count == 0 || value > 1.01 * last) ++count, last = value;
  return count;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = 0.5 * static_cast<double>(x.size() - 1);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - middle, dy = y[i] - middle;
    xy += dx * dy, xx += dx * dx, yy += dy * dy;
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::vector<double> column(const std::vector<Point>& points, double Point::*member) {
  std::vector<double> values;
  for (const Point& point : points) values.push_back(point.*member);
  return values;
}

}  // namespace tessera::laws
