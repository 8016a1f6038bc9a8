// How much text a task reads of a sample, so that what is cut is said before a training and by `tessera data check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "tasks/base/text_input.h"

namespace tessera::tasks {

struct LongText {
  std::string text;
  int64_t lost = 0;  // tokens for which there is no place
  // "NAME: the text 'a red star …' is 3 tokens longer than the model reads"
  std::string line(const std::string& sample) const;
};

class TextLimit {
 public:
  virtual ~TextLimit() = default;
  // Texts of a sample that are longer than the model reads in training. Throws where they are no UTF-8.
  virtual std::vector<LongText> long_texts(const data::RawSample& sample) const = 0;
};

// Captions that have more than `length` tokens.
std::vector<LongText> long_captions(const data::RawSample& sample, const TextInput& input, int64_t length);

// What is to be said of at most `most` samples of a set, spread over it evenly; "" where all their texts fit. Samples that
// cannot be read are passed over.
std::string long_texts_note(const TextLimit& limit, const data::Source& source, int64_t most);

}  // namespace tessera::tasks
