// Finds texts that exceed a task's context length, before training and for `tessera data check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "tasks/base/text_input.h"

namespace tessera::tasks {

struct LongText {
  std::string text;
  int64_t lost = 0;  // number of truncated tokens
  // "NAME: the text 'a red star …' is 3 tokens longer than the model reads"
  std::string line(const std::string& sample) const;
};

class TextLimit {
 public:
  static constexpr const char* kAbility = "a model that reads texts of images";
  virtual ~TextLimit() = default;
  // Returns the texts of a sample that exceed the context length in training. Throws on invalid UTF-8.
  virtual std::vector<LongText> long_texts(const data::RawSample& sample) const = 0;
};

// Returns captions with more than `length` tokens.
std::vector<LongText> long_captions(const data::RawSample& sample, const TextInput& input, int64_t length);

// Returns a note on at most `most` samples, spread evenly over a set; "" if all their texts fit. Skips
// unreadable samples.
std::string long_texts_note(const TextLimit& limit, const data::Source& source, int64_t most);

}  // namespace tessera::tasks
