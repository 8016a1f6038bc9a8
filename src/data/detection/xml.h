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

// Reads the root element of a file of at most 4 MiB. Attributes, comments and processing instructions are skipped.
// Document types, unknown entities and elements nested deeper than 16 are refused: an error has the file and line.
XmlElement read_xml(const std::string& path);

}  // namespace tessera::data
