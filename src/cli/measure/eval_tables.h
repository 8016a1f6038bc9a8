// Tables among the findings of `tessera eval`: of the classes, of the samples.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "io/files/file.h"
#include "tasks/base/findings.h"

namespace tessera::cli {

// Throws a usage error with the option's name if the task has no such table.
const report::TableBlock& named_table(const tasks::Findings& findings, const char* name, const char* option);

// As CSV, which is then in its place.
void write_table(AtomicFile& file, const report::TableBlock& table);

// In columns; shares as percentages, counts as they are.
void print_table(const report::TableBlock& table);

// {"cat": {"samples": 10, "recall": 0.9}}, by the first column.
nlohmann::ordered_json table_json(const report::TableBlock& table);

}  // namespace tessera::cli
