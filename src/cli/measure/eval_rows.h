// The rows of `tessera eval`: one for each file of weights, each varied setting and each size.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/analysis_output.h"
#include "cli/base/prediction_report.h"
#include "tasks/base/findings.h"

namespace tessera::cli {

// What differs between rows besides weights and size: ("precision", "bf16"), ("model.rope_scale", "0.5").
using VariedSettings = std::vector<std::pair<std::string, std::string>>;
// In the place of a value where the model has no such setting.
inline constexpr const char* kUnvaried = "-";
// All combinations of lists KEY=VALUE,VALUE, the last key changing fastest; one empty combination of no list. A usage error for what
// is not such a list, and for a key that is given twice.
std::vector<VariedSettings> vary(const std::vector<std::string>& lists);

struct EvaluatedRow {
  std::string weights;
  VariedSettings settings = {};
  int64_t size = 0;
  tasks::Findings findings = {};
  // Of a task with one class an image: Wilson's intervals at 95 % of its accuracies by metric, and which images are right.
  std::map<std::string, eval::Interval> intervals = {};
  std::vector<bool> hits = {};
  std::optional<eval::PredictionMeasures> measures = {};  // where they were asked for
};

// Which columns tell rows apart.
struct RowColumns {
  std::vector<std::string> weights;  // of all rows; no column where there is one
  VariedSettings varied;             // the widest value of each key
};

// Words in columns, printed as rows come.
class RowPrinter {
 public:
  explicit RowPrinter(RowColumns columns) : columns_(std::move(columns)) {}
  void print(const EvaluatedRow& row, bool header) const;

 private:
  RowColumns columns_;
};

// What tells a row from the others in words.
std::string row_label(const EvaluatedRow& row, const std::vector<EvaluatedRow>& rows,
                      const RowColumns& columns);

nlohmann::ordered_json row_json(const EvaluatedRow& row, const std::string& data);

// The table of all rows; a curve of the first metric over sizes where there are several; measures; the blocks of the first row's findings.
std::vector<AnalysisSection> row_sections(const std::vector<EvaluatedRow>& rows, const RowColumns& columns,
                                          const PredictionSettings& settings);

}  // namespace tessera::cli
