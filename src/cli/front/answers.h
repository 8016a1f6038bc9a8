// The table of the front: what the program prints for words that need no work.
#pragma once

#include <cstddef>

namespace tessera::cli {

struct Answer {
  const char* words;  // "train --help"
  const char* text;
};

// The build writes them by `write_answers.cpp`.
extern const Answer kAnswers[];
extern const size_t kAnswerCount;

}  // namespace tessera::cli
