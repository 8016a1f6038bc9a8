// Lists of images without a separator of columns: a line "path label" per image. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source_kinds.h"

namespace tessera::data {

struct ListLine {
  int64_t number = 0;  // of the line, from 1
  std::string path, label;
};

struct ListLines {
  std::vector<ListLine> lines;
  bool labelled = true;
  ProblemList problems;
};

// Splits a list into paths and labels; `name` is for error lines. A path ends at the last image suffix before a blank,
// or at its closing quote, so paths and class names may contain blanks; without either the label is the last word. A
// list in which every line ends in an image suffix has no labels. Blank lines, comments ("# …") and a line of titles
// ("path label") are no images. Throws if lines begin with their labels.
ListLines read_list_lines(const std::string& content, const std::string& name);

}  // namespace tessera::data
