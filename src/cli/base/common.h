// What several subcommands share: compute options, metrics, CSV fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/base/arguments.h"
#include "tasks/base/findings.h"

namespace tessera::data {
struct Lines;
}

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

// On one line unless indented; what is not UTF-8 (file names may be anything) is replaced instead of ending
// the program, and control characters are written as \uNNNN, those behind ASCII too.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// The fields of a config that are set, by their keys.
nlohmann::ordered_json json_of(const std::vector<OptionField>& fields);

// As many images of that side at a time as were asked for, or as fit into 256 MB of pixels: the side is what a
// file of weights says.
int64_t batch_that_fits(int64_t asked, int64_t side);

// A name from outside in a line or a column: newlines and control characters as \xNN.
std::string one_line(const std::string& name);

// A usage error, before any work, where the folder that a file is written into does not exist.
void require_folder_of(const std::string& out);
// "TITLE: 3" and up to `show` of the lines, on standard output; nothing where there are none.
void print_findings(const char* title, const data::Lines& findings, int64_t show);

// Quoted as RFC 4180 asks where the text needs it.
std::string csv_field(const std::string& field);
// A table with its heads, a line a row.
std::string csv_of(const report::TableBlock& table);

}  // namespace tessera::cli
