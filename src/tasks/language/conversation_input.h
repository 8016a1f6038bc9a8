// Conversations about images, and documents with images among their texts, as numbers: the words with a place for each
// image, and the images.
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

// The order of a conversation's questions in training: as they are, or drawn anew each time. A model that is asked one
// question at a time must not learn to answer it from the answers before it.
enum class QuestionOrder { given, drawn };

struct ConversationInput {
  Tokeniser tokeniser;
  const ChatTemplate& chat;
  int64_t length = 0;       // tokens of a sample
  int64_t image_token = 0;  // the id in the places of an image
  int64_t per_image = 1;    // places that an image takes
  // Conversations in front of a sample's own, drawn from these: the prompt of few-shot learning.
  int64_t shots = 0;
  std::shared_ptr<const data::Conversations> examples = {};
  bool learns_examples = true;  // false: a loss is taken on the sample's own answers alone
  bool training = true;         // the examples are drawn anew in each epoch, else always the same
  QuestionOrder order = QuestionOrder::given;
};

// "image", f32 [3, side, side], or with shots [1 + shots, 3, side, side], the sample's own last; "ids" and "labels", i32
// [length]: cut or padded behind, labels kNotLearned where nothing is learned; "type", i32 []: the kind of answer; "cut", i32
// []: tokens that had no place. Fails where the images have no place, and in training where no answer has one.
std::shared_ptr<const data::Transform> make_conversation_transform(
    const ConversationInput& input, std::shared_ptr<const data::Transform> image);

// The sample's conversation where it has more tokens than `length`, its image's among them: none are counted of examples.
std::vector<LongText> long_conversation(const data::RawSample& sample, const ConversationInput& input);

// Documents (Alayrac et al. 2022, Flamingo, section 2.4): `end_of_chunk` stands behind the text of an image, where the next
// image or the end of the document follows. What has more tokens or images than there is place for is cut to a window that
// begins at an image, which is drawn in training and is the first one otherwise, and ends in front of the first image that
// has no place.
struct DocumentInput {
  Tokeniser tokeniser;
  int64_t length = 0;  // tokens of a sample
  int64_t images = 1;  // of a sample, at most
  int64_t image_token = 0, end_of_chunk = 0;
  bool training = true;
  std::shared_ptr<const data::Interleaved> documents = {};
};

// "image", f32 [images, 3, side, side], zeros where a sample has fewer; "ids" and "labels", i32 [length], as above: learned
// is what stands behind an image of the sample.
std::shared_ptr<const data::Transform> make_document_transform(const DocumentInput& input,
                                                               std::shared_ptr<const data::Transform> image);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::QuestionOrder> {
  static constexpr std::array names = {"given", "drawn"};
};
