#include "eval/robustness.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::eval {

const CorruptionBaseline& alexnet_on_imagenet_c() {
  // The mean errors over the five severities: the divisors in the benchmark's code.
  static const CorruptionBaseline table = {"AlexNet",
                                           {{"gaussian_noise", 0.886428},
                                            {"shot_noise", 0.894468},
                                            {"impulse_noise", 0.92264},
                                            {"defocus_blur", 0.81988},
                                            {"glass_blur", 0.826268},
                                            {"motion_blur", 0.785948},
                                            {"zoom_blur", 0.79836},
                                            {"snow", 0.866816},
                                            {"frost", 0.826572},
                                            {"fog", 0.819324},
                                            {"brightness", 0.564592},
                                            {"contrast", 0.853204},
                                            {"elastic_transform", 0.646056},
                                            {"pixelate", 0.71784},
                                            {"jpeg_compression", 0.6065}},
                                           0.43478};
  return table;
}

namespace {

// The columns of a baseline's table; -1: missing.
struct BaselineColumns {
  ptrdiff_t severities = -1, images = -1, error = -1;
};

BaselineColumns columns_of(const std::vector<std::string>& header, const std::string& name) {
  BaselineColumns columns;
  std::vector<std::string> others;
  for (size_t c = 1; c < header.size(); ++c) {
    const auto place = static_cast<ptrdiff_t>(c);
    if (header[c] == "severities")
      columns.severities = place;
    else if (header[c] == "images")
      columns.images = place;
    else if (header[c] == "error")
      columns.error = place;
    else if (!(" " + header[c]).ends_with(" low") && !(" " + header[c]).ends_with(" high"))
      others.push_back(printable(header[c]));
  }
  if (header[0] != "corruption" || (columns.error < 0 && others.empty()))
    fail_usage(name, ": its first line must name the columns corruption and error, as --csv writes them");
  if (columns.error < 0)
    fail_usage(name, " holds the errors of ", counted(std::ssize(others), "model"), " (", join(others, ", "),
               "), a baseline is one: write its table with that one as --weights");
  return columns;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (const std::string& cell : split(line, ',')) cells.emplace_back(trim(cell));
  return cells;
}

// Parses "1 3 5"; empty if invalid.
std::vector<int> severities_in(const std::string& list) {
  std::vector<int> out;
  for (const std::string& part : split(list, ' ')) {
    const auto severity = parse_int(part);
    if (!severity || *severity < 1 || *severity > 5) return {};
    out.push_back(static_cast<int>(*severity));
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Adds the line `where` of a baseline's table.
void add_line(const std::vector<std::string>& cells, const BaselineColumns& columns, const std::string& where,
              const std::string& line, CorruptionBaseline& baseline) {
  const auto cell = [&](ptrdiff_t column) {
    return column >= 0 && column < std::ssize(cells) ? cells[static_cast<size_t>(column)] : std::string();
  };
  const auto error = parse_double(cell(columns.error));
  if (!error || !(*error >= 0 && *error <= 1))
    fail_usage(where, ": '", printable(line), "' must name a corruption and its error, 0 to 1");
  const int64_t images = std::max<int64_t>(0, parse_int(cell(columns.images)).value_or(0));
  if (cells[0] == "clean") {
    baseline.clean = *error, baseline.clean_images = images;
    return;
  }
  if (columns.severities >= 0) {
    const std::vector<int> severities = severities_in(cell(columns.severities));
    if (severities.empty() || (!baseline.errors.empty() && severities != baseline.severities))
      fail_usage(where, ": the severities '", printable(cell(columns.severities)),
                 "' must be some of 1 to 5 as in '1 3 5', the same in every line");
    baseline.severities = severities;
  }
  baseline.errors.push_back({cells[0], *error, images});
}

}  // namespace

std::string severity_list(std::span<const int> severities, const char* separator) {
  std::string out;
  for (const int severity : severities) out += (out.empty() ? "" : separator) + std::to_string(severity);
  return out;
}

CorruptionBaseline parse_baseline(std::string_view table, const std::string& name) {
  CorruptionBaseline baseline{.name = name, .errors = {}, .clean = std::numeric_limits<double>::quiet_NaN()};
  BaselineColumns columns;
  int64_t number = 0;
  bool first = true;
  for (const std::string& line : split(table, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (std::exchange(first, false)) {
      columns = columns_of(cells, name);
      continue;
    }
    add_line(cells, columns, text(name, " line ", number), line, baseline);
  }
  if (baseline.errors.empty()) fail_usage(name, ": holds no line with a corruption and its error");
  return baseline;
}

const CorruptionError& baseline_error(const CorruptionBaseline& baseline, const std::string& corruption) {
  const auto row = std::find_if(baseline.errors.begin(), baseline.errors.end(),
                                [&](const auto& other) { return other.corruption == corruption; });
  if (row == baseline.errors.end())
    fail_usage("the baseline ", baseline.name, " has no error for '", printable(corruption),
               "': measure it there too, or leave the corruption out");
  if (!(row->error > 0))
    fail_usage("the baseline ", baseline.name, " has the error 0 for '", printable(corruption),
               "', by which nothing can be divided: leave the corruption out");
  return *row;
}

void require_comparable(const CorruptionBaseline& baseline, std::span<const std::string> corruptions,
                        std::span<const int> severities) {
  if (!std::equal(severities.begin(), severities.end(), baseline.severities.begin(),
                  baseline.severities.end()))
    fail_usage("the errors of the baseline ", baseline.name, " are means over the severities ",
               severity_list(baseline.severities, ","), ", not ", severity_list(severities, ","),
               ": give --severity ", severity_list(baseline.severities, ","), ", or a baseline measured at ",
               severity_list(severities, ","));
  for (const std::string& corruption : corruptions) baseline_error(baseline, corruption);
}

void require_as_many(const CorruptionBaseline& baseline, const std::string& what, int64_t images,
                     int64_t of_baseline) {
  if (images > 0 && of_baseline > 0 && images != of_baseline)
    fail_usage("the baseline ", baseline.name, " was measured on ", counted(of_baseline, "image"), " (", what,
               "), here are ", images, ": measure both on the same images");
}

MeanCorruptionError mean_corruption_error(std::span<const CorruptionError> errors, double clean,
                                          const CorruptionBaseline& baseline) {
  check(!errors.empty(), "mean corruption error: no corruption was measured");
  MeanCorruptionError result;
  const auto n = static_cast<double>(errors.size());
  for (const CorruptionError& mine : errors) {
    const CorruptionError& row = baseline_error(baseline, mine.corruption);
    const double ce = mine.error / row.error;
    result.corruption_errors.push_back({mine.corruption, ce, mine.images});
    result.mce += ce / n;
    result.relative_mce += (mine.error - clean) / (row.error - baseline.clean) / n;
    result.mean_error += mine.error / n;
  }
  return result;
}

double CueCounts::shape_bias() const {
  const int64_t either = shape + texture;
  return either > 0 ? static_cast<double>(shape) / static_cast<double>(either)
                    : std::numeric_limits<double>::quiet_NaN();
}

double ShapeBias::decided() const {
  return all.total > 0 ? static_cast<double>(all.shape + all.texture) / static_cast<double>(all.total) : 0;
}

ShapeBias shape_bias(std::span<const CueTrial> trials) {
  ShapeBias result;
  for (const CueTrial& trial : trials) {
    if (trial.shape == trial.texture) continue;
    for (CueCounts* counts : {&result.all, &result.by_category[trial.shape]}) {
      ++counts->total;
      counts->shape += trial.decision == trial.shape;
      counts->texture += trial.decision == trial.texture;
    }
  }
  return result;
}

CueMapping cue_mapping_of_names(std::span<const std::string> class_names) {
  // Each category, and its names in other sets such as CIFAR-10.
  static const std::vector<std::pair<std::string, std::vector<std::string>>> known = {
      {"airplane", {"airplane", "plane"}},
      {"bear", {"bear"}},
      {"bicycle", {"bicycle"}},
      {"bird", {"bird"}},
      {"boat", {"boat", "ship"}},
      {"bottle", {"bottle"}},
      {"car", {"car", "automobile"}},
      {"cat", {"cat"}},
      {"chair", {"chair"}},
      {"clock", {"clock"}},
      {"dog", {"dog"}},
      {"elephant", {"elephant"}},
      {"keyboard", {"keyboard"}},
      {"knife", {"knife"}},
      {"oven", {"oven"}},
      {"truck", {"truck", "pickup_truck"}}};
  CueMapping mapping;
  for (const auto& [category, names] : known) {
    std::vector<int64_t> classes;
    for (size_t c = 0; c < class_names.size(); ++c)
      if (std::find(names.begin(), names.end(), class_names[c]) != names.end())
        classes.push_back(static_cast<int64_t>(c));
    if (classes.empty()) continue;
    mapping.categories.push_back(category);
    mapping.classes.push_back(std::move(classes));
  }
  return mapping.categories.size() < 2 ? CueMapping() : mapping;
}

size_t cue_decision(std::span<const double> probabilities, const CueMapping& mapping) {
  size_t best = 0;
  double highest = -1;
  for (size_t i = 0; i < mapping.classes.size(); ++i) {
    double mean = 0;
    for (const int64_t c : mapping.classes[i]) mean += probabilities[static_cast<size_t>(c)];
    mean /= static_cast<double>(mapping.classes[i].size());
    if (mean > highest) highest = mean, best = i;
  }
  return best;
}

}  // namespace tessera::eval
