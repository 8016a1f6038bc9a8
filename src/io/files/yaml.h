// The usual forms of YAML that other programs write: keys at the left margin with a text, a list or numbered texts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tessera {

// A text in a file, with its line; "" and 0 if the key is missing.
struct YamlText {
  std::string value = {};
  int64_t line = 0;
};

// An item of a list `- a` or `[a]`, or of numbered texts, `0: a` or `{0: a}`.
struct YamlItem {
  std::optional<int64_t> number = {};
  std::string value = {};
  int64_t line = 0;
};

// Lines of other forms that are indented belong to the key before them. Errors have the file and the line: a key that
// repeats, a list that is not closed, and in texts that are read anchors, tags and escapes other than \" and \\.
class YamlFile {
 public:
  YamlFile(const std::string& content, std::string path);
  const std::string& path() const { return path_; }
  bool has(const std::string& key) const { return entries_.contains(key); }
  // Returns the line of a key that the file has.
  int64_t line(const std::string& key) const { return entries_.at(key).value.line; }
  // Returns the text of one line.
  YamlText scalar(const std::string& key) const;
  // Returns the text of one line, or those of a list.
  std::vector<YamlText> texts(const std::string& key) const;
  // Returns the items of a list or of numbered texts, of a key that the file has.
  std::vector<YamlItem> items(const std::string& key) const;

  // Throws an error with the file and the line.
  template <class... Parts>
  [[noreturn]] void wrong(int64_t line, const Parts&... parts) const {
    fail(path_, " line ", line, ": ", parts...);
  }

 private:
  // One key at the left margin: its value, and the indented lines after it.
  struct Entry {
    YamlText value;
    std::vector<YamlText> block;
  };

  void read_line(const std::vector<std::string>& lines, size_t& i);
  std::string plain(const std::string& raw, int64_t line) const;
  static std::vector<YamlText> flow_items(const YamlText& list);
  YamlItem listed_item(const YamlText& part, bool dashed) const;
  YamlItem numbered_item(const YamlText& part) const;

  std::string path_;
  std::map<std::string, Entry> entries_;
  Entry* last_ = nullptr;
};

}  // namespace tessera
