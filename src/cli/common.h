// What several subcommands share: compute options, class names, CSV fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/arguments.h"
#include "train/weights.h"

namespace tessera::cli {

// --device, --precision, --threads.
void add_compute_options(Arguments& command, std::string& device, std::string& precision, int64_t& threads);

// The class's name, or "class 7" for weights that carry no names.
std::string class_name(const train::WeightsInfo& info, int64_t index);

// On one line unless indented; what is not UTF-8 (file names may be anything) is replaced instead of ending
// the program.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// Quoted as RFC 4180 asks where the text needs it.
std::string csv_field(const std::string& field);

}  // namespace tessera::cli
