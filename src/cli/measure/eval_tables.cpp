#include "cli/measure/eval_rows.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/common.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

std::string as_percentage(const std::string& value) {
  const auto share = value.find('.') != std::string::npos ? parse_double(value) : std::nullopt;
  return share ? fixed(100 * *share, 1) : value;
}

}  // namespace

const report::TableBlock& named_table(const tasks::Findings& findings, const char* name, const char* option) {
  const report::TableBlock* table = report::find_table(findings.blocks, name);
  if (!table) fail_usage(option, ": the task of these weights has no table of ", name);
  return *table;
}

void write_table(AtomicFile& file, const report::TableBlock& table) {
  file.write(csv_of(table));
  file.commit();
}

void print_table(const report::TableBlock& table) {
  size_t width = table.columns[0].name.size();
  for (const auto& row : table.rows) width = std::max(width, display_width(one_line(row[0])));
  const auto line = [&](const std::vector<std::string>& cells) {
    std::cout << padded(cells[0], width + 2) << std::right;
    for (size_t c = 1; c < cells.size(); ++c)
      std::cout << std::setw(static_cast<int>(std::max<size_t>(9, table.columns[c].name.size() + 2)))
                << cells[c];
    std::cout << "\n";
  };
  std::vector<std::string> heads;
  for (const report::Column& column : table.columns) heads.push_back(column.name);
  std::cout << "\n";
  line(heads);
  for (const auto& row : table.rows) {
    std::vector<std::string> cells = {one_line(row[0])};
    for (size_t c = 1; c < row.size(); ++c) cells.push_back(as_percentage(row[c]));
    line(cells);
  }
}

nlohmann::ordered_json table_json(const report::TableBlock& table) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& row : table.rows)
    for (size_t c = 1; c < row.size(); ++c) {
      const auto count = parse_int(row[c]);
      const auto number = parse_double(row[c]);
      nlohmann::ordered_json& cell = out[row[0]][table.columns[c].name];
      if (count)
        cell = *count;
      else if (number)
        cell = *number;
      else
        cell = row[c];
    }
  return out;
}

}  // namespace tessera::cli
