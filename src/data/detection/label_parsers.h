// Parsers of label files: small strict XML (Pascal VOC), and the keys of YOLO's data.yaml that name images and classes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/class_names.h"
#include "io/files/yaml.h"

namespace tessera::data {

struct XmlElement {
  std::string name = {}, text = {};  // text without the text of children, trimmed
  int64_t line = 0;                  // where the element begins
  std::vector<XmlElement> children = {};

  // Returns the first child with that name, null if there is none.
  const XmlElement* find(std::string_view child) const;
};

inline constexpr uint64_t kMostXmlBytes = uint64_t{4} << 20;  // bytes

// Parses the root element of a file's content. Skips attributes, comments and processing instructions. Refuses document
// types, unknown entities and elements nested deeper than 16: an error has the file `where` and the line.
XmlElement parse_xml(std::string content, const std::string& where);

struct YoloYaml {
  YamlText path;
  std::vector<YamlText> train, val, test;  // folders or lists of images
  NumberedClasses classes;
  bool keypoints = false;  // labels have key points after the box (`kpt_shape`)
};

inline constexpr uint64_t kMostYamlBytes = uint64_t{16} << 20;  // bytes

// Parses the keys that name images and classes, in the usual forms of YAML. An error has the file `where` and the line.
YoloYaml parse_yolo_yaml(const std::string& content, const std::string& where);

}  // namespace tessera::data
