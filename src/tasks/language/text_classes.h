// Tasks that predict classes of texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tasks/base/task.h"

namespace tessera::tasks {

struct GivenText {
  std::string text;
  std::string pair = {};  // a second text, "" = none
};

class TextClasses {
 public:
  static constexpr const char* kAbility = "classes of texts: task bert with goal = \"classes\"";
  virtual ~TextClasses() = default;
  // Returns at most `most` classes of each text, the most likely first. Longer texts than task.length are cut. Throws a
  // usage error if the model has no head for classes.
  virtual std::vector<Prediction> predict_texts(std::span<const GivenText> texts, int64_t most) = 0;
};

}  // namespace tessera::tasks
