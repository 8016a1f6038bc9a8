// What several subcommands share: compute options, metrics, CSV fields.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "cli/base/arguments.h"
#include "tasks/base/findings.h"

namespace tessera::cli {

// --device, --precision, --threads.
void add_compute_options(Arguments& command, std::string& device, std::string& precision, int64_t& threads);

// --class-names, of weights that do not say what their classes are called.
void add_class_names(Arguments& command, std::string& file);

// --classes-in-order, of a set that calls the weights' classes otherwise.
void add_classes_in_order(Arguments& command, bool& in_order);

// "95.4 %" of a share, "0.1234" of another number.
std::string value_text(const tasks::Metric& metric);
// "  top1 81.25 %  loss 0.6531".
std::string metrics_text(const std::vector<tasks::Metric>& metrics);

// On one line unless indented; what is not UTF-8 (file names may be anything) is replaced instead of ending
// the program, and control characters are written as \uNNNN, those behind ASCII too.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// As many images of that side at a time as were asked for, or as fit into 256 MB of pixels: the side is what a
// file of weights says.
int64_t batch_that_fits(int64_t asked, int64_t side);

// A name from outside in a line or a column: newlines and control characters as \xNN.
std::string one_line(const std::string& name);

// A usage error, before any work, where the folder that a file is written into does not exist.
void require_folder_of(const std::string& out);
// A usage error "NAME REASON" of the first option that is given.
void refuse_given(std::initializer_list<std::pair<const char*, bool>> options, const std::string& reason);
// Quoted as RFC 4180 asks where the text needs it.
std::string csv_field(const std::string& field);
// A table with its heads, a line a row.
std::string csv_of(const report::TableBlock& table);

}  // namespace tessera::cli
