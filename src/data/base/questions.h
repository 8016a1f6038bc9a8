// Questions that a source can ask about its own images, without a file of conversations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// A question and its answer, perhaps several in turn, and the kind of the answers.
struct AskedImage {
  std::vector<std::string> turns;
  std::string type;
};

class ImageQuestions {
 public:
  virtual ~ImageQuestions() = default;
  // Of each image; 0 where nothing can be asked.
  virtual int64_t questions_per_image() const = 0;
  // Kinds of answers, in alphabetical order.
  virtual std::vector<std::string> question_types() const = 0;
  // `number` from 0 to questions_per_image() - 1; always the same.
  virtual AskedImage ask(int64_t index, int64_t number) const = 0;
};

// Null where a source asks nothing.
const ImageQuestions* image_questions(const Source& source);

}  // namespace tessera::data
