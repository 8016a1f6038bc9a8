// `tessera curves RUN`: the numbers of metrics.jsonl as a table, or all of them as CSV or JSON.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

struct Curves {
  std::vector<Json> lines;
  std::vector<std::string> columns;  // the keys of all lines, in order of first appearance
};

// Reads a run directory, or its metrics.jsonl. Ignores a truncated last line, as a continued run does.
Curves read_curves(const std::string& path, bool evaluations_only) {
  namespace fs = std::filesystem;
  const std::string file = fs::is_directory(path) ? path + "/metrics.jsonl" : path;
  if (!file_exists(file)) fail(path, ": no metrics.jsonl: give the directory of a run");
  Curves curves;
  int number = 0;
  const auto lines = split(read_text(file, kMostBytes), '\n');
  for (const std::string& line : lines) {
    ++number;
    if (trim(line).empty()) continue;
    Json parsed;
    try {
      parsed = parse_json<Json>(line, text(file, " line ", number));
    } catch (const Error&) {
      if (number == static_cast<int>(lines.size())) break;
      throw;
    }
    check(parsed.is_object(), file, " line ", number, ": no JSON object");
    if (evaluations_only && parsed.value("kind", "") != "eval") continue;
    for (const auto& [key, ignored] : parsed.items())
      if (std::find(curves.columns.begin(), curves.columns.end(), key) == curves.columns.end())
        curves.columns.push_back(key);
    curves.lines.push_back(std::move(parsed));
  }
  return curves;
}

// Empty if a line has no such value, or null.
std::string cell(const Json& line, const std::string& column) {
  const auto found = line.find(column);
  if (found == line.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

void print_csv(const Curves& curves) {
  for (size_t c = 0; c < curves.columns.size(); ++c)
    std::cout << (c ? "," : "") << csv_field(curves.columns[c]);
  std::cout << "\n";
  for (const Json& line : curves.lines) {
    for (size_t c = 0; c < curves.columns.size(); ++c)
      std::cout << (c ? "," : "") << csv_field(cell(line, curves.columns[c]));
    std::cout << "\n";
  }
}

void print_table(const Curves& curves) {
  const auto shown = [](const Json& line, const std::string& column) {
    const auto found = line.find(column);
    return found != line.end() && found->is_number_float() ? fixed(found->get<double>(), 4)
                                                           : cell(line, column);
  };
  std::vector<std::string> columns = curves.columns;
  std::erase(columns, "kind");
  std::vector<size_t> widths;
  for (const std::string& column : columns) {
    size_t width = column.size();
    for (const Json& line : curves.lines) width = std::max(width, shown(line, column).size());
    widths.push_back(width);
  }
  for (size_t c = 0; c < columns.size(); ++c)
    std::cout << (c ? "  " : "") << std::setw(static_cast<int>(widths[c])) << columns[c];
  std::cout << "\n";
  for (const Json& line : curves.lines) {
    for (size_t c = 0; c < columns.size(); ++c)
      std::cout << (c ? "  " : "") << std::setw(static_cast<int>(widths[c])) << shown(line, columns[c]);
    std::cout << "\n";
  }
}

struct CurvesOptions {
  std::string path;
  bool csv = false, json = false;

  template <class V>
  void visit(V& v) {
    v("run", path, {.argument = "RUN", .required = true}, "run directory, or its metrics.jsonl");
    v("csv", csv, "every line of training and validation as CSV");
    v("json", json, "every line of training and validation as one JSON object");
  }
};

void curves(const CurvesOptions& options) {
  if (options.csv && options.json) fail_usage("--csv and --json: choose one");
  const Curves read = read_curves(options.path, !options.csv && !options.json);
  if (read.lines.empty()) fail(options.path, ": nothing was measured yet");
  for (const Json& line : read.lines) print_outcome(options.json, line);
  if (options.json) return;
  options.csv ? print_csv(read) : print_table(read);
}

}  // namespace

void add_curves(Arguments& command, Action& action) { action = with_options<CurvesOptions>(command, curves); }

}  // namespace tessera::cli
