// COCO's 80 things, for published detectors that do not say what their classes are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

struct ObjectClassNames {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;  // category_id of COCO's annotation files
};

// The names of a detector's `count` classes besides the background: COCO's in their order for 80, by category_id for 90 (from 1, as
// torchvision counts) and 91 (from 0, as DETR does; "unused 12" stands where COCO has no class), else "class 1", "class 2", ….
ObjectClassNames published_object_classes(int64_t count);

}  // namespace tessera::data
