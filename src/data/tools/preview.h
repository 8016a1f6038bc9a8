// Samples for inspection: decoded, with their label as caption.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

struct PreviewCell {
  Image picture;        // empty (no pixels) if the sample cannot be read
  std::string caption;  // class name; "a, b" for several; the first caption of a set without classes
  std::string numbers;  // the same classes by number: "class 3", "classes 0, 3"
  std::string error;
};

// Returns `count` samples drawn by seed, ordered by class, shrunk to fit side x side if they are larger.
std::vector<PreviewCell> preview_cells(const Source& source, int64_t count, uint64_t seed, int side);

}  // namespace tessera::data
