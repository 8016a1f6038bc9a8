// Labels in the cells of a table: marks, several labels, names next to numbers.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/table_columns.h"

namespace tessera::data {

// Reads a mark: 0, 1, 0.0, 1.0, True or False in any case, with `signs` also -1 for 0. Nothing for another text.
std::optional<bool> read_mark(std::string_view cell, bool signs = false);

// True for a list in brackets, as pandas writes one: "['cat', 'dog']", "[0, 1]", and for Label Studio's {"choices": ["cat"]}.
bool is_bracketed(std::string_view cell);

// Throws if a cell has a list of objects with boxes or outlines, as Label Studio writes them.
void refuse_objects(std::string_view cell, const std::string& where);

// Returns the words of a cell, which bars separate, or in brackets commas, or blanks between numbers as NumPy prints them.
std::vector<std::string> label_words(std::string_view cell, char separator);

// Returns the separator of several labels in a column: a bar, or in one with the title `labels` or `tags` a semicolon, a
// comma or a blank that divides a cell into labels of other cells. Blanks between numbers also separate.
char label_separator(const std::vector<CsvRow>& rows, const TableColumns& columns);

// Returns the synset of Kaggle's ImageNet tables, "n01440764 4 5 60 70 …" with the boxes of an image; others unchanged.
std::string_view class_of_boxes(std::string_view cell);

// Returns the class name next to the label in an entry of a .json table or the .json of a shard's sample; "" without one.
std::string name_member(const nlohmann::json& entry);

// Names of classes next to their numbers.
class NumberNames {
 public:
  // Adds those of a sample.
  void add(const std::vector<std::string>& labels, const std::string& name);
  // True if each sample has a name and one label, and these determine each other.
  bool one_to_one() const { return !names_.empty() && !broken_; }
  // True if also all labels are numbers.
  bool usable() const { return one_to_one() && numbers_; }
  // Returns the names in the order of the numbers, as classes_of_numbers gives them. A number without a name is one.
  std::vector<std::string> classes() const;

 private:
  std::map<std::string, std::string, std::less<>> names_, labels_;  // by label, by name
  bool numbers_ = true, broken_ = false;
};

}  // namespace tessera::data
