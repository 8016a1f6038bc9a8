// Labels as files spell them: numbers, class names, or several of either. Internal to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct Label {
  std::vector<int64_t> classes;  // exactly one unless `multi`; sorted, without repeats
  bool multi = false;
};

// A number of classes above this is a broken file.
inline constexpr int64_t kMostClasses = 1'000'000;

class ClassNames {
 public:
  ClassNames() = default;
  explicit ClassNames(std::vector<std::string> names);
  const std::vector<std::string>& names() const { return names_; }
  // -1 if there is no such class.
  int64_t find(std::string_view name) const;
  // ", did you mean 'cat'?" or nothing. A wrong list of classes would ask for every row: only the first
  // questions are answered.
  std::string hint(std::string_view name) const;

 private:
  std::shared_ptr<std::atomic<int>> hints_left_ = std::make_shared<std::atomic<int>>(20);
  std::vector<std::string> names_;
  std::map<std::string, int64_t, std::less<>> places_;
};

// What a text that could be both means: in a .cls file the number of a class, in a table its name.
enum class LabelText { number_first, name_first };

// "7" or, where names are known, "cat"; `where` is for the error line. The number is in 0 … kMostClasses-1,
// not yet compared with the number of classes.
int64_t read_label(std::string_view content, LabelText kind, const ClassNames& names,
                   const std::string& where);

// {"label": 7}, {"label": "cat"}, {"labels": [7, "cat"]}.
Label read_json_label(const nlohmann::json& object, const ClassNames& names, const std::string& where);

// Sorted, without repeats.
Label several_labels(std::vector<int64_t> classes);

}  // namespace tessera::data
