// The rows of `tessera eval`: one per weights file, varied setting and size.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/analysis_output.h"
#include "cli/base/prediction_report.h"
#include "data/base/source.h"
#include "io/files/file.h"
#include "tasks/base/findings.h"

namespace tessera::cli {

// Differences of rows other than weights and size: ("precision", "bf16"), ("model.rope_scale", "0.5").
using VariedSettings = std::vector<std::pair<std::string, std::string>>;
// Marks a setting that the model does not have.
inline constexpr const char* kUnvaried = "-";
// Returns all combinations of lists KEY=VALUE,VALUE, the last key changing fastest; one empty combination
// without lists. Throws a usage error for another form, and for a repeated key.
std::vector<VariedSettings> vary(const std::vector<std::string>& lists);

struct EvaluatedRow {
  std::string weights;
  VariedSettings settings = {};
  int64_t size = 0;
  tasks::Findings findings = {};
  // For tasks with one class per image: 95 % Wilson intervals by metric, and the correct images.
  std::map<std::string, eval::Interval> intervals = {};
  std::vector<bool> hits = {};
  std::optional<eval::PredictionMeasures> measures = {};  // if requested
};

// The columns of the keys in which rows differ.
struct RowColumns {
  std::vector<std::string> weights;  // names in all rows; no column if there is only one
  VariedSettings varied;             // the widest value of each key
};

// Prints words in columns, row by row as they come.
class RowPrinter {
 public:
  explicit RowPrinter(RowColumns columns) : columns_(std::move(columns)) {}
  void print(const EvaluatedRow& row, bool header) const;

 private:
  RowColumns columns_;
};

// Returns the differences of a row from the others as text.
std::string row_label(const EvaluatedRow& row, const std::vector<EvaluatedRow>& rows,
                      const RowColumns& columns);

nlohmann::ordered_json row_json(const EvaluatedRow& row, const std::string& data);

// Returns the table of all rows; a curve of the first metric if there are several sizes; measures; the
// blocks of the first row's findings.
std::vector<AnalysisSection> row_sections(const std::vector<EvaluatedRow>& rows, const RowColumns& columns,
                                          const PredictionSettings& settings);

// Returns Wilson's interval of a share of samples, at 95 %.
eval::Interval interval_of_share(double share, int64_t samples);

// Throws a usage error for a folder of corruptions, which contains sets, not classes.
void refuse_corruptions(const std::string& path);

// Notes that a set with a single class cannot show whether a model separates classes.
void note_one_class(const data::Source& source);

// Prints the order of the classes if the weights lack their names: a wrong order makes all numbers wrong.
void note_class_order(const data::Source& source);

// Tables in the findings of `tessera eval`: of classes and of samples.

// Throws a usage error with the option's name if the task has no such table.
const report::TableBlock& named_table(const tasks::Findings& findings, const char* name, const char* option);

// Prints the table as CSV instead of the usual output.
void write_table(AtomicFile& file, const report::TableBlock& table);

// Prints in columns; shares as percentages, counts as they are.
void print_table(const report::TableBlock& table);

// Returns {"cat": {"samples": 10, "recall": 0.9}}, keyed by the first column.
nlohmann::ordered_json table_json(const report::TableBlock& table);

}  // namespace tessera::cli
