// Conversations about images that are made of their labels and boxes, in the form of LLaVA's files (Liu et al. 2023, Visual
// instruction tuning, section 3). There a language model writes three kinds of response from captions and boxes; here
// sentences do that say nothing which the annotation does not:
//
//   conversation  several questions: what is there, how many, where, whether something is there, which is further left
//   detail        a long description: captions, and every object with its place and size
//   reasoning     a question whose answer is argued: what is nearest, which are more, what the image is about
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/base/source.h"

namespace tessera::data {

enum class ResponseKind { conversation, detail, reasoning };

struct Instruction {
  std::string image;  // as Conversations finds it
  ResponseKind kind = ResponseKind::conversation;
  std::vector<std::string> turns;  // question, answer, question, …; the first has "<image>" in front
};

// One of each kind of the sample, or none where its source knows nothing of it. Which questions are asked, and in which
// words, depends on (seed, index) alone.
std::vector<Instruction> instructions_of(const Source& source, int64_t index, uint64_t seed);

// An object of LLaVA's files, on one line: id, image, conversations, answer_type. `number` makes the id.
std::string instruction_line(const Instruction& instruction, int64_t number);

// A usage error unless the source has classes, objects or captions.
void require_something_to_say(const Source& source);

}  // namespace tessera::data

template <>
struct tessera::EnumNames<tessera::data::ResponseKind> {
  static constexpr std::array names = {"conversation", "detail", "reasoning"};
};
