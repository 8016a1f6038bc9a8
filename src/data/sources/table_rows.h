// The rows of a table of images, whatever the form of its file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/base/source_kinds.h"
#include "data/base/table_labels.h"

namespace tessera::data {

struct TableRow {
  std::string where;  // "labels.csv line 7"
  std::string path;
  std::vector<std::string> labels;
  bool numbers = false;  // JSON: labels are numbers, whatever the class names
  std::optional<Split> split;
  bool test = false;  // its split is that of test data
  std::string name;   // class name next to a number
  std::vector<std::string> captions = {};
};

struct ImageTable {
  std::vector<TableRow> rows;
  bool multi = false;
  bool has_split = false;
  bool labelled = true;
  bool captioned = false;
  bool guessed = false;              // its texts without a title look like captions
  bool titled = false;               // CSV: the first line has titles
  char separator = '|';              // between labels in a cell
  std::vector<std::string> classes;  // names of the columns, if these are the classes
  NumberNames names;                 // of classes by number
  std::string name_title;            // title over them
  ProblemList problems;
  std::vector<std::string> warnings;
};

// True for the name of a list of lines "path label".
bool is_list(const std::string& path);

// Reads a table: CSV, TSV, JSON, JSONL or a list. Broken rows become its problems. Throws if it has no rows or no column of
// images. `may_be_captions`: texts without a title are captions if they look like such, else labels.
ImageTable read_table(const std::string& path, bool may_be_captions = true);

}  // namespace tessera::data
