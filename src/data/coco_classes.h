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

// Of a detector with so many classes besides the background: 80 (COCO's in their order), 90 and 91 (by category_id from 1 and from
// 0, as torchvision and DETR count; "unused 12" where COCO has none), else "class 1", "class 2", ….
ObjectClassNames published_object_classes(int64_t count);

}  // namespace tessera::data
