// Comma- or tab-separated text by RFC 4180. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct CsvRow {
  int64_t line = 0;  // first line of the row, from 1
  std::vector<std::string> fields;
};

// Parses CSV. Quoted fields may contain separators, line ends and doubled quotes. Lines end in LF or CRLF.
// Blank lines and a byte order mark are skipped. Throws an Error with `name` and the line for a quote inside
// an unquoted field, text after a closing quote, or a missing closing quote.
std::vector<CsvRow> parse_csv(std::string_view content, char separator, const std::string& name);

}  // namespace tessera::data
