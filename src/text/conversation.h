// Conversations as one text, in the templates that chat models were trained with, and the tokens with a loss.
//
// The templates and the rules for labels are those of LLaVA's code (Liu et al. 2023): the loss covers the
// answers and their end tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokeniser.h"

namespace tessera {

// The id of an image among token ids, as in LLaVA, and the label of a token without a loss.
inline constexpr int64_t kImageId = -200;
inline constexpr int64_t kNotLearned = -100;
inline constexpr std::string_view kImageWord = "<image>";

// The ways to join the parts of a conversation:
//   two      system SEP USER: question SEP ASSISTANT: answer SEP2 …       (Vicuna 1.1, LLaVA 1.5)
//   single   system SEP USER: question SEP ASSISTANT: answer SEP …        (LLaVA 0)
//   llama_2  SEP [INST] <<SYS>> system <</SYS>> question [/INST] answer SEP2 …
//   mpt      system SEP USER question SEP ASSISTANT answer SEP …           (ChatML: roles end in a newline)
//   plain    <image> caption SEP                                           (LLaVA's first stage)
enum class TurnStyle { two, single, llama_2, mpt, plain };

struct ChatTemplate {
  std::string name;
  std::string system, user, assistant;
  TurnStyle style = TurnStyle::two;
  std::string sep, sep2;
};
// Returns v1, plain, llava_llama_2, mpt, llava_v0, chatml_direct, llama_3, or short (no system text, for
// small models). Throws a usage error with the nearest name if the template is unknown.
const ChatTemplate& find_template(const std::string& name);
std::vector<std::string> template_names();

struct Turn {
  bool user = true;
  std::string text;
};

// Moves the images to the front: takes each "<image>" out of a turn and puts it and a line end before the
// text.
std::vector<Turn> with_images_first(std::vector<Turn> turns);

// Returns the text. If the last turn is the user's, the text ends with the assistant's role.
std::string conversation_text(const ChatTemplate& chat, const std::vector<Turn>& turns);

// Returns the ids of a text with images, where an image becomes kImageId. Encodes each part between "<image>"
// words separately, and keeps the begin token of the first part only. With `images` false, "<image>" is a word
// like any other.
std::vector<int64_t> encode_with_images(const Tokeniser& tokeniser, std::string_view text,
                                        bool images = true);

// Throws Error if the tokeniser lacks the token that ends an answer of the template.
void check_template(const Tokeniser& tokeniser, const ChatTemplate& chat);

struct TrainingText {
  std::string text;
  std::vector<int64_t> ids, labels;  // of equal length
};
// Returns the whole conversation for training, whatever words its turns hold. Throws Error unless turns
// alternate, the user's first, and as check_template().
// `images` as above.
TrainingText training_text(const Tokeniser& tokeniser, const ChatTemplate& chat,
                           const std::vector<Turn>& turns, bool images = true);

}  // namespace tessera
