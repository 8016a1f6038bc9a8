// The keys of YOLO's data.yaml that name images and classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// A text in a file, with its line; "" and 0 if the key is missing.
struct YamlText {
  std::string value = {};
  int64_t line = 0;
};

struct YoloYaml {
  YamlText path, train, val, test;
  std::vector<std::string> names;  // by class number
};

inline constexpr uint64_t kMostYamlBytes = uint64_t{16} << 20;  // bytes

// Parses the usual forms of YAML: `key: value`, and names as `[a, b]`, `{0: a, 1: b}`, a list of lines `- a` or of lines
// `0: a`. Skips other keys along with their indented lines. An error has the file `where` and the line.
YoloYaml parse_yolo_yaml(const std::string& content, const std::string& where);

}  // namespace tessera::data
