#include "cli/measure/eval_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "cli/base/common.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/tools/corruption.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

double rate(const tasks::Findings& findings) {
  return static_cast<double>(findings.samples) / findings.seconds;
}

std::string interval_text(const eval::Interval& interval) {
  return fixed(100 * interval.low, 2) + "-" + fixed(100 * interval.high, 2);
}

const eval::Interval* interval_of(const EvaluatedRow& row, const std::string& metric) {
  const auto found = row.intervals.find(metric);
  return found == row.intervals.end() ? nullptr : &found->second;
}

// Returns the differences of a row from the others, except size: "best.safetensors, bf16,
// model.rope_scale=0.5".
std::string label_of(const EvaluatedRow& row, const RowColumns& columns) {
  std::string out = columns.weights.size() > 1 || row.settings.empty() ? row.weights : "";
  for (const auto& [key, value] : row.settings)
    if (value != kUnvaried)
      out += (out.empty() ? "" : ", ") + (key == "precision" ? value : key + "=" + value);
  return out;
}

bool several_sizes(const std::vector<EvaluatedRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.size != rows[0].size; });
}

report::TableBlock table_of(const std::vector<EvaluatedRow>& rows, const RowColumns& columns) {
  report::TableBlock table{.name = "rows"};
  if (columns.weights.size() > 1) table.columns.push_back({"weights"});
  for (const auto& [key, value] : columns.varied) table.columns.push_back({key});
  table.columns.insert(table.columns.end(), {{"size", true}, {"samples", true}});
  for (const tasks::Metric& metric : rows.at(0).findings.metrics) {
    table.columns.push_back({metric.info.name, true});
    if (interval_of(rows[0], metric.info.name))
      table.columns.insert(table.columns.end(),
                           {{metric.info.name + "_low", true}, {metric.info.name + "_high", true}});
  }
  table.columns.push_back({"images_per_second", true});
  for (const EvaluatedRow& row : rows) {
    std::vector<std::string> cells;
    if (columns.weights.size() > 1) cells.push_back(row.weights);
    for (const auto& [key, value] : row.settings) cells.push_back(value);
    cells.insert(cells.end(), {text(row.size), text(row.findings.samples)});
    for (const tasks::Metric& metric : rows[0].findings.metrics) {
      const double value = row.findings.metric(metric.info.name);
      cells.push_back(std::isnan(value) ? "-" : fixed(value, 4));
      if (const auto* interval = interval_of(row, metric.info.name))
        cells.insert(cells.end(), {fixed(interval->low, 4), fixed(interval->high, 4)});
    }
    cells.push_back(fixed(rate(row.findings), 1));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// Draws the first metric over the image side, one curve per file and combination of settings.
report::Drawing curve_of(const std::vector<EvaluatedRow>& rows, const RowColumns& columns) {
  const tasks::MetricInfo& info = rows.at(0).findings.metrics.at(0).info;
  std::vector<report::Curve> curves;
  for (const EvaluatedRow& row : rows) {
    const std::string name = label_of(row, columns);
    if (curves.empty() || curves.back().name != name) curves.push_back({.name = name});
    curves.back().points.push_back({static_cast<double>(row.size), row.findings.metric(info.name)});
  }
  return line_drawing(curves, {.title = text(info.name, " over resolution"),
                               .x_label = "side in pixels",
                               .y_label = info.name,
                               .percent = info.unit == tasks::Unit::share});
}

}  // namespace

std::vector<VariedSettings> vary(const std::vector<std::string>& lists) {
  std::vector<VariedSettings> out = {{}};
  std::vector<std::string> keys;
  for (const std::string& list : lists) {
    const size_t equals = list.find('=');
    const std::string key = list.substr(0, equals);
    if (equals == std::string::npos || equals == 0 || equals + 1 == list.size())
      fail_usage("--vary '", list,
                 "': must be KEY=VALUE,VALUE, as model.rope_scale=1,0.5 or precision=fp32,bf16");
    if (key != "precision" && !key.starts_with("model."))
      fail_usage("--vary ", key, ": only precision, and settings of the model, model.KEY");
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      fail_usage("--vary ", key, " is given twice: name all its values in one list");
    keys.push_back(key);
    std::vector<VariedSettings> longer;
    for (const VariedSettings& before : out)
      for (const std::string& value : split(list.substr(equals + 1), ',')) {
        longer.push_back(before);
        longer.back().emplace_back(key, trim(value));
      }
    out = std::move(longer);
  }
  return out;
}

void RowPrinter::print(const EvaluatedRow& row, bool header) const {
  const auto width = [](const std::string& name, size_t least) {
    return std::setw(static_cast<int>(std::max(least, name.size() + 2)));
  };
  std::ostringstream head, line;
  head << std::right, line << std::right;
  if (columns_.weights.size() > 1) {
    size_t widest = 7;
    for (const std::string& name : columns_.weights) widest = std::max(widest, display_width(one_line(name)));
    head << padded("weights", widest);
    line << padded(one_line(row.weights), widest);
  }
  for (size_t k = 0; k < row.settings.size(); ++k) {
    const auto& [key, value] = row.settings[k];
    const size_t least = columns_.varied.at(k).second.size() + 2;
    head << width(key, least) << key;
    line << width(key, least) << value;
  }
  head << std::setw(6) << "size" << std::setw(9) << "samples";
  line << std::setw(6) << row.size << std::setw(9) << row.findings.samples;
  for (const tasks::Metric& metric : row.findings.metrics) {
    const std::string& name = metric.info.name;
    head << width(name, 12) << name;
    line << width(name, 12) << value_text(metric, 2);
    if (const auto* interval = interval_of(row, name)) {
      head << std::setw(14) << "95 % of it";
      line << std::setw(14) << interval_text(*interval);
    }
  }
  head << std::setw(11) << "images/s";
  line << std::setw(11) << fixed(rate(row.findings), 0);
  if (header) std::cout << head.str() << "\n";
  std::cout << line.str() << "\n";
}

std::string row_label(const EvaluatedRow& row, const std::vector<EvaluatedRow>& rows,
                      const RowColumns& columns) {
  return several_sizes(rows) ? text(label_of(row, columns), " at ", row.size) : label_of(row, columns);
}

Json row_json(const EvaluatedRow& row, const std::string& data) {
  Json line = {{"weights", row.weights}, {"data", data}};
  for (const auto& [key, value] : row.settings)
    if (value != kUnvaried) line["settings"][key] = value;
  line["size"] = row.size, line["samples"] = row.findings.samples;
  for (const tasks::Metric& metric : row.findings.metrics) {
    line[metric.info.name] = metric.value;
    if (const auto* interval = interval_of(row, metric.info.name)) {
      line[metric.info.name + "_low"] = interval->low;
      line[metric.info.name + "_high"] = interval->high;
    }
  }
  line["images_per_second"] = rate(row.findings);
  if (row.measures) line["measures"] = measures_json(*row.measures);
  return line;
}

std::vector<AnalysisSection> row_sections(const std::vector<EvaluatedRow>& rows, const RowColumns& columns,
                                          const PredictionSettings& settings) {
  std::vector<AnalysisSection> out = {{.heading = "Evaluation", .table = table_of(rows, columns)}};
  if (!rows[0].intervals.empty())
    out[0].note = "Intervals of accuracies are Wilson's at 95 %; shares are written as 0 to 1.";
  if (several_sizes(rows)) out[0].drawings = {curve_of(rows, columns)};
  if (rows[0].measures) {
    std::vector<MeasuredPredictions> measured;
    for (const EvaluatedRow& row : rows) measured.push_back({row_label(row, rows, columns), *row.measures});
    out.push_back(measures_section(measured, settings.measures.bins));
    out.push_back(bins_section(measured[0]));
  }
  out.push_back({.blocks = rows[0].findings.blocks});
  return out;
}

eval::Interval interval_of_share(double share, int64_t samples) {
  return eval::wilson(std::llround(share * static_cast<double>(samples)), samples);
}

void refuse_corruptions(const std::string& path) {
  for (const std::string& name : data::corruption_names())
    if (std::filesystem::is_directory(std::filesystem::path(path) / name / "1"))
      fail_usage(path,
                 " holds corruptions with their severities, as ImageNet-C does: measure it by `tessera "
                 "analyse robustness --corrupted ",
                 shell_quoted(path), "`");
}

void note_one_class(const data::Source& source) {
  const data::ClassLabels* labels = source.class_labels();
  if (!labels || labels->multi_label() || source.size() < 2) return;
  const int64_t first = labels->label(0);
  for (int64_t i = 1; i < source.size(); ++i)
    if (labels->label(i) != first) return;
  std::cerr << one_line(text("all ", source.size(), " images are of the class '",
                             labels->class_names().at(static_cast<size_t>(first)),
                             "': an accuracy on them is how often the weights name it, not how well it "
                             "separates classes"))
            << "\n";
}

void note_class_order(const data::Source& source) {
  std::vector<std::string> names = data::require_labels(source, "tessera eval").class_names(),
                           natural = names;
  data::order_classes(natural, {.class_order = "natural"});
  const std::string other =
      natural == names ? "" : text("; --class-order natural takes ", some_of(natural), ", as timm does");
  std::cerr << one_line(text("classes are taken one for one, in the order ", some_of(names), other)) << "\n";
}

}  // namespace tessera::cli
