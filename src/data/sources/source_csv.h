// Comma- or tab-separated text as RFC 4180 has it. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct CsvRow {
  int64_t line = 0;  // of the file, from 1, where the row starts
  std::vector<std::string> fields;
};

// Fields in double quotes may hold separators, line ends and, doubled, quotes; lines end in LF or CRLF; blank
// lines are passed over, as is a byte-order mark. Throws Error with `name` and the line: a quote inside an
// unquoted field, text after a closing quote, a quote without an end.
std::vector<CsvRow> parse_csv(std::string_view content, char separator, const std::string& name);

}  // namespace tessera::data
