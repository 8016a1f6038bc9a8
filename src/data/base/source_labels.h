// Labels as files write them: numbers, class names, or several of either. Internal to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct Label {
  std::vector<int64_t> classes;  // exactly one unless `multi`; sorted, without repeats
  bool multi = false;
};

// A file with more classes than this is broken.
inline constexpr int64_t kMostClasses = 1'000'000;

class ClassNames {
 public:
  ClassNames() = default;
  // `first` is the number of the first class in labels.
  explicit ClassNames(std::vector<std::string> names, int64_t first = 0);
  const std::vector<std::string>& names() const { return names_; }
  int64_t first() const { return first_; }
  // Returns -1 if no class has this name.
  int64_t find(std::string_view name) const;
  // Returns ", did you mean 'cat'?" or "". With a wrong class list every row would need a hint, so only the
  // first calls get one.
  std::string hint(std::string_view name) const;

 private:
  std::shared_ptr<std::atomic<int>> hints_left_ = std::make_shared<std::atomic<int>>(20);
  std::vector<std::string> names_;
  int64_t first_ = 0;
  std::map<std::string, int64_t, std::less<>> places_;
};

// The meaning of an ambiguous text: a class number in a .cls file, a class name in a table.
enum class LabelText { number_first, name_first };

// Parses "7" or, if names are given, "cat". Errors name `where`. Returns the class in 0 … kMostClasses-1, not yet
// checked against the number of classes.
int64_t read_label(std::string_view content, LabelText kind, const ClassNames& names,
                   const std::string& where);

// One label of a JSON object as text.
struct JsonLabel {
  std::string word;
  bool is_number = false;
};

// Returns the label or labels of a JSON object, see read_json_label.
std::vector<JsonLabel> json_labels(const nlohmann::json& object, const std::string& where);

// Parses {"label": 7}, {"label": "cat"} or {"labels": [7, "cat"]}; without either, another usual title ("class").
Label read_json_label(const nlohmann::json& object, const ClassNames& names, const std::string& where);

// Reads 64, 64.0 and "64" alike, as other programs write ids, sizes and labels. None if it is not whole.
std::optional<int64_t> whole_number(const nlohmann::json& value);

// Returns the text of a label without the ".0" of a whole number, which pandas adds to a column with empty cells.
std::string_view without_fraction(std::string_view label);

// Returns the number of a class that another program wrote as 2, 2.0 or 2.000000e+00. None if it is not whole.
std::optional<int64_t> class_number(const std::string& word);

// Returns the number that a list of class names gives to its first class: 0 or 1; 0 for a list without numbers, or with
// numbers in lines of text.
int64_t first_class_number(const std::string& path);
// Returns the names in a list for labels, which its numbers count.
ClassNames read_label_names(const std::string& path);

// Returns the classes sorted, without repeats.
Label several_labels(std::vector<int64_t> classes);

}  // namespace tessera::data
