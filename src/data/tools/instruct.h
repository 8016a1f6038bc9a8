// Conversations about images, made from their labels and boxes, in the format of LLaVA's files (Liu et al.
// 2023, Visual instruction tuning, section 3). LLaVA uses a language model to write three kinds of responses
// from captions and boxes. Here fixed sentences are used, with no content beyond the annotation:
//
//   conversation  several questions: the objects, their number and places, presence, which is further left
//   detail        a long description: captions, and every object with its place and size
//   reasoning     a question with an argued answer: the nearest object, which are more, the image's subject
//   question      each question of the set about the image, with its short answer
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/base/source.h"

namespace tessera::data {

enum class ResponseKind { conversation, detail, reasoning, question };

struct Instruction {
  std::string image;  // as Conversations finds it
  ResponseKind kind = ResponseKind::conversation;
  std::vector<std::string> turns;  // question, answer, question, …; the first starts with "<image>"
};

// Returns one instruction of each kind for which the source has data, and one for each of its questions. The choice
// of questions and words depends only on (seed, index).
std::vector<Instruction> instructions_of(const Source& source, int64_t index, uint64_t seed);

// Returns an object of LLaVA's files on one line: id, image, conversations, answer_type. `number` is the id.
std::string instruction_line(const Instruction& instruction, int64_t number);

// Throws a usage error unless the source has classes, objects or captions.
void require_something_to_say(const Source& source);

}  // namespace tessera::data

template <>
struct tessera::EnumNames<tessera::data::ResponseKind> {
  static constexpr std::array names = {"conversation", "detail", "reasoning", "question"};
};
