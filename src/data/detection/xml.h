// A small strict parser of XML annotation files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace tessera::data
