// COCO's 80 classes, for published detectors without class names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

struct ObjectClassNames {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;  // category_id of COCO's annotation files
};

// Returns the names of a detector's `count` classes without the background. For 80: COCO's in order. For 90
// (from 1, as in torchvision) and 91 (from 0, as in DETR): by category_id, with "unused 12" for unassigned
// ids. Otherwise: "class 1", "class 2", ….
ObjectClassNames published_object_classes(int64_t count);

}  // namespace tessera::data
