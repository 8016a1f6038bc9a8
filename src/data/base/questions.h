// Questions that a source generates about its own images, without a conversation file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// A question and its answer, possibly several one after another, and the kind of the answers.
struct AskedImage {
  std::vector<std::string> turns;
  std::string type;
};

class ImageQuestions {
 public:
  virtual ~ImageQuestions() = default;
  // Returns the number of questions for each image, 0 if the source has none.
  virtual int64_t questions_per_image() const = 0;
  // Returns the kinds of answers, in alphabetical order.
  virtual std::vector<std::string> question_types() const = 0;
  // Returns question `number`, 0 to questions_per_image() - 1; it is always the same.
  virtual AskedImage ask(int64_t index, int64_t number) const = 0;
};

// Returns null if a source generates no questions.
const ImageQuestions* image_questions(const Source& source);

}  // namespace tessera::data
