// The classes of masks with their colours, as files next to the masks list them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

using MaskColour = std::array<uint8_t, 3>;

struct MaskClasses {
  std::string file;  // "" without one
  std::vector<std::string> names;
  std::vector<MaskColour> colours;  // one for each class
};

// Reads CVAT's labelmap.txt, "cat:128,0,0::" a line; a table with columns name, r, g and b; lines "128 0 0 cat"; or JSON
// with a name and a colour for each class. Returns no classes for a file without colours.
MaskClasses read_mask_classes(const std::string& path);

// Returns the classes of the first file of a usual name in one of the folders; none without such a file.
MaskClasses mask_colours_in(const std::vector<std::string>& folders);
// Returns the file of names alone by other programs (labelme's class_names.txt, labels.txt) in one of the folders, or "".
std::string mask_names_in(const std::vector<std::string>& folders);
// Reads such a file without labelme's "__ignore__", the class of pixels without one.
std::vector<std::string> read_mask_names(const std::string& path);

// The class of each colour.
class ColourTable {
 public:
  ColourTable() = default;
  // Throws an error that names `file` if two classes have one colour.
  explicit ColourTable(const MaskClasses& classes);
  bool empty() const { return classes_.empty(); }
  // True if all colours are gray, as black and white of two classes.
  bool is_gray() const { return gray_; }
  // Adds a colour of pixels without a class.
  void ignore(const MaskColour& colour);
  // Returns the class of each pixel of an RGB image. Adds other colours with their pixels to `strange`.
  Image classes_of(const Image& colours, std::map<MaskColour, int64_t>& strange) const;

 private:
  std::map<MaskColour, uint8_t> classes_;
  bool gray_ = true;
};

// Returns "12,13,14 (100 pixels), …" of the most frequent colours.
std::string listed_colours(const std::map<MaskColour, int64_t>& pixels);

}  // namespace tessera::data
