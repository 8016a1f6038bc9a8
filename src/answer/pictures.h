// Answers about images at their own size, computed one by one: the class of each pixel, and the objects.
#pragma once

#include <memory>

#include "answer/image_rows.h"
#include "tasks/dense/object_finder.h"
#include "tasks/dense/segment.h"

namespace tessera::answer {

// Returns the classes of a mask with their pixels and shares, the most frequent first.
nlohmann::ordered_json class_counts(const Image& mask, const std::vector<std::string>& classes);
// Returns objects as a list: {"class", "score", "box", "mask"}; a mask is in COCO's compressed run lengths.
nlohmann::ordered_json json_of(const std::vector<tasks::FoundObject>& objects,
                               const std::vector<std::string>& classes);

struct ObjectOptions {
  double threshold = 0.5;
  template <class V>
  void visit(V& v) {
    v("threshold", threshold, between(0, 1), "objects below this score are left out");
  }
};

// Null unless the task has this ability.
std::shared_ptr<Answerer> open_segmenter(const AnswerSetup& setup);
std::shared_ptr<Answerer> open_finder(const AnswerSetup& setup);

}  // namespace tessera::answer
