// Conversations as one text, in the templates that chat models were trained with, and which of its tokens are learned.
//
// The templates and the rules for labels are those of LLaVA's code (Liu et al. 2023): a loss is taken on the answers and
// what ends them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokeniser.h"

namespace tessera {

// The place of an image among token ids, as LLaVA writes it; and the label of a token that is not learned.
inline constexpr int64_t kImageId = -200;
inline constexpr int64_t kNotLearned = -100;
inline constexpr std::string_view kImageWord = "<image>";

// How the parts of a conversation are put together:
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
// v1, plain, llava_llama_2, mpt, llava_v0, chatml_direct, llama_3; and short, without a system text, for small models.
// A usage error with the nearest name for another.
const ChatTemplate& find_template(const std::string& name);
std::vector<std::string> template_names();

struct Turn {
  bool user = true;
  std::string text;
};

// Images in front of the words: "<image>" is taken out of the turn and put before it, with a line end.
std::vector<Turn> with_images_first(std::vector<Turn> turns);

// The text; a last turn of the user is followed by what asks for an answer.
std::string conversation_text(const ChatTemplate& chat, const std::vector<Turn>& turns);

// Ids of a text with images: what lies between the "<image>" words is encoded on its own, each with the special tokens
// in front, of which only the first ones stay; kImageId stands for an image.
std::vector<int64_t> encode_with_images(const Tokeniser& tokeniser, std::string_view text);

struct TrainingText {
  std::string text;
  std::vector<int64_t> ids, labels;  // as many
  // The lengths of the turns do not add up to that of the text with this tokeniser: nothing of it is learned.
  bool mismatch = false;
};
// The whole conversation for training. Throws Error where turns do not alternate, beginning with the user's.
TrainingText training_text(const Tokeniser& tokeniser, const ChatTemplate& chat,
                           const std::vector<Turn>& turns);

}  // namespace tessera
