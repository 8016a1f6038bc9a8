// Conversations about images as numbers: the words with a place for each image, and the images.
#pragma once

#include <cstdint>
#include <memory>

#include "data/conversations.h"
#include "data/transform.h"
#include "text/conversation.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

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
};

// "image", f32 [3, side, side], or with shots [1 + shots, 3, side, side], the sample's own last; "ids" and "labels", i32
// [length]: cut or padded behind, labels kNotLearned where nothing is learned; "type", i32 []: the kind of answer.
// Fails where the words have no place for the images.
std::shared_ptr<const data::Transform> make_conversation_transform(
    const ConversationInput& input, std::shared_ptr<const data::Transform> image);

}  // namespace tessera::tasks
