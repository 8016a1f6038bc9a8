// Lists of images without a separator of columns: a line "path label" per image. Internal to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source_kinds.h"

namespace tessera::data {

struct ListLine {
  int64_t number = 0;  // of the line, from 1
  std::string path, label;
  std::string name = {};            // name for a number
  std::optional<Split> split = {};  // if the list has splits
  bool test = false;                // its split is that of test data
};

struct ListLines {
  std::vector<ListLine> lines;
  bool labelled = true;
  bool has_split = false;
  ProblemList problems;
};

// Splits a list into paths and labels; `name` is for error lines. A path ends at the last image suffix before a blank,
// or at its closing quote, so paths and class names may contain blanks; without either the label is the last word. A
// list in which every line ends in an image suffix has no labels. Blank lines, comments ("# …") and a line of titles
// ("path label") are no images. Throws if lines begin with their labels. Lists of published sets: images.txt with the
// files of has_numbered_lists(); Oxford-IIIT Pet's "Abyssinian_100 1 1 1"; FGVC Aircraft's "1025794 Boeing 707".
ListLines read_list_lines(const std::string& content, const std::string& name);

// True if a folder has lists by number, as CUB-200-2011 and NABirds do: images.txt ("1 a/b.jpg"), image_class_labels.txt
// ("1 7"), and perhaps classes.txt ("7 007.Tern") and train_test_split.txt ("1 0").
bool has_numbered_lists(const std::string& folder);

}  // namespace tessera::data
