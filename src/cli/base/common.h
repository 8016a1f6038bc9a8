// Shared by several subcommands: compute options, metrics, CSV fields, paths of outputs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
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
    v("threads", threads, between(0, 1024), "compute threads, 0 = all cores");
  }
};

template <class V>
void visit_class_names(V& v, std::string& file) {
  v("class_names", file, "file with one class name in a line (default: from the weights)");
}

template <class V>
void visit_classes_in_order(V& v, bool& in_order) {
  v("classes_in_order", in_order, "match the set's classes to the weights' by number instead of by name");
}

// "95.4 %" of a share, "0.1234" of another number.
std::string value_text(const tasks::Metric& metric);
// "  top1 81.25 %  loss 0.6531".
std::string metrics_text(const std::vector<tasks::Metric>& metrics);

// Returns JSON on one line unless indented. Replaces bytes that are not UTF-8, as file names may have;
// writes control characters as \uNNNN, also those beyond ASCII.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// The fields of a config that are set, by their keys.
nlohmann::ordered_json json_of(const std::vector<OptionField>& fields);

// Returns `asked` images of that side, or as many as fit into 256 MB of pixels: a file may give any side.
int64_t batch_that_fits(int64_t asked, int64_t side);

// A name from outside in a line or a column: newlines and control characters as \xNN.
std::string one_line(const std::string& name);

// Throws a usage error if the folder of an output file does not exist.
void require_folder_of(const std::string& out);
// Returns the field, quoted by RFC 4180 if needed.
std::string csv_field(const std::string& field);
// A table with its heads, a line a row.
std::string csv_of(const report::TableBlock& table);

struct OutputPlace {
  std::string path;
  std::string option;      // the option with the path: "--overlay"
  std::string input = {};  // the image that it is made of, "" if it is made of all of them
};

// Throws a usage error if two outputs are one file, or an output is an input, however their paths are
// spelled (".", links, other folders). A repeated input may write its output twice.
void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);

// True if OUT names a file by one of the writable endings (".png"), false for a folder; an existing folder
// is a folder whatever its name. Throws a usage error for a file with several images, for another image
// ending, or if the folder is a file or below one.
bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings);

// Writes report.html (self-contained) into the run directory; returns its path.
std::string write_training_report(const train::Recipe& recipe, const train::RunSummary& summary);

}  // namespace tessera::cli
