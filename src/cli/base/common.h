// Shared by several subcommands: compute options, metrics, CSV fields, paths of outputs.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "cli/base/output_places.h"
#include "tasks/base/findings.h"

namespace tessera::train {
struct Recipe;
struct RunSummary;
}  // namespace tessera::train

namespace tessera::cli {

struct ComputeOptions {
  std::string device = "auto", precision = "fp32";
  int64_t threads = 0;
  template <class V>
  void visit(V& v) {
    v("device", device, "cpu, cuda or auto");
    v("precision", precision, "fp32, bf16, fp16, fp64, or int8 (CPU, without training)");
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
  }
};

template <class V>
void visit_class_names(V& v, std::string& file) {
  v("class_names", file, "file with one class name in a line (default: from the weights)");
}

template <class V>
void visit_class_order(V& v, std::string& order) {
  v("class_order", order, {.choices = {"alphabetical", "natural"}},
    "order of classes that folders or a table name: c1, c10, c2 or c1, c2, c10");
}

template <class V>
void visit_classes_in_order(V& v, bool& in_order) {
  v("classes_in_order", in_order, "match the set's classes to the weights' by number instead of by name");
}

// "95.4 %" for a share, "0.1234" for other numbers, "-" for none. `digits`: decimals of a percentage.
std::string value_text(const tasks::Metric& metric);
std::string value_text(const tasks::Metric& metric, int digits);
// Returns " top1 81.25 % loss 0.6531".
std::string metrics_text(const std::vector<tasks::Metric>& metrics);

// Returns JSON on one line unless indented. Replaces bytes that are not UTF-8 (file names may contain them);
// writes control characters as \uNNNN, even those beyond ASCII.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// Returns the fields of a config that are set, by their keys.
nlohmann::ordered_json json_of(const std::vector<OptionField>& fields);

// Returns `asked`, or the number of images of that side that fit into 256 MB: a file may set any side.
int64_t batch_that_fits(int64_t asked, int64_t side);

// --json of commands that write files: one object that names the written files.
template <class V>
void visit_json(V& v, bool& json) {
  v("json", json, "one JSON object on standard output; lines for people then go to standard error");
}
// Returns the stream for lines for people: standard output, or standard error if --json takes that.
std::ostream& people(bool json);
// Prints the outcome of a command if `json`.
void print_outcome(bool json, const nlohmann::ordered_json& outcome);

// Makes an external name safe for a line or column: newlines and control characters become \xNN.
std::string one_line(const std::string& name);

// Throws a usage error if the folder of an output file does not exist.
void require_folder_of(const std::string& out);
// Returns the field, quoted by RFC 4180 if needed. Control characters become \xNN; a word that a spreadsheet
// would run as a formula gets an apostrophe in front.
std::string csv_field(const std::string& field);
// Returns the path with its bytes unchanged, quoted if needed; "=a.png" becomes "./=a.png".
std::string csv_path(const std::string& path);
// Prints a table with a heading, one line per row.
std::string csv_of(const report::TableBlock& table);

// Writes report.html (self-contained) into the run directory; returns its path.
std::string write_training_report(const train::RunSummary& summary);

}  // namespace tessera::cli
