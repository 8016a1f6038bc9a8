// Converts conversations about images, and documents with images, to ids with placeholders, and the images.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
#include "data/transforms/transform.h"
#include "tasks/base/text_limit.h"
#include "text/conversation.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// The order of a conversation's questions in training: as given, or shuffled each time. If a model will get
// single questions, it must not learn to answer from earlier answers.
enum class QuestionOrder { given, drawn };

struct ConversationInput {
  Tokeniser tokeniser;
  const ChatTemplate& chat;
  int64_t length = 0;       // tokens of a sample
  int64_t image_token = 0;  // id at the positions of an image
  int64_t per_image = 1;    // positions of an image
  // Number of few-shot conversations before a sample's own, drawn from `examples`.
  int64_t shots = 0;
  std::shared_ptr<const data::Conversations> examples = {};
  bool learns_examples = true;  // false: only the sample's own answers have a loss
  bool training = true;         // draws new examples in each epoch; otherwise they are fixed
  QuestionOrder order = QuestionOrder::given;
};

// Fields: "image", f32 [3, side, side], or with shots [1 + shots, 3, side, side], the sample's own last.
// For a conversation without an image, its place is left out, and unused places at the end are zeros.
// "ids" and "labels", i32 [length], truncated or padded at the end, with label kNotLearned for tokens without
// a loss; "type", i32 []: the kind of answer; "cut", i32 []: number of truncated tokens. Throws if the images
// do not fit, and in training if no answer fits.
std::shared_ptr<const data::Transform> make_conversation_transform(
    const ConversationInput& input, std::shared_ptr<const data::Transform> image);

// Returns the sample's conversation if it has more than `length` tokens, including its image but no examples.
std::vector<LongText> long_conversation(const data::RawSample& sample, const ConversationInput& input);

// Documents (Alayrac et al. 2022, Flamingo, section 2.4). `end_of_chunk` follows the text of an image, before
// the next image or the end of the document. A document with too many tokens or images is cropped to a
// window. The window begins at an image, random in training and otherwise the first, and ends before the
// first image that does not fit.
struct DocumentInput {
  Tokeniser tokeniser;
  int64_t length = 0;  // tokens of a sample
  int64_t images = 1;  // most images of a sample
  int64_t image_token = 0, end_of_chunk = 0;
  bool training = true;
  std::shared_ptr<const data::Interleaved> documents = {};
};

// Fields: "image", f32 [images, 3, side, side], zero-padded; "ids" and "labels", i32 [length], as above.
// Tokens after an image of the sample have a loss.
std::shared_ptr<const data::Transform> make_document_transform(const DocumentInput& input,
                                                               std::shared_ptr<const data::Transform> image);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::QuestionOrder> {
  static constexpr std::array names = {"given", "drawn"};
};
