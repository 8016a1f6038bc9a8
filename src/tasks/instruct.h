// Visual instruction tuning (Liu et al. 2023, LLaVA): a language model answers questions about images.
//
//   H = projector(features of the image tower behind an inner block)
//   loss = - sum over the tokens of answers of log p(token | H in the place of <image>, all tokens before it)
//
// Both of LLaVA's stages are this task: the first freezes all but the projector (train.freeze = ["blocks.*", …,
// "language_model.*"]), the second the tower alone. With LoRA the language model's own weights are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/llava.h"
#include "tasks/registry.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

struct InstructConfig {
  std::string conversations, val_conversations, tokenizer, chat = "short";
  int64_t length = 128;
  models::LlavaConfig images;
  models::LanguageConfig language{.vocabulary = 1, .dim = 256, .depth = 6, .heads = 4, .context = 512};
  int64_t lora_rank = 0;
  double lora_alpha = 16;
  std::vector<std::string> lora_targets = {"q_proj", "v_proj"};

  template <class V>
  void visit(V& v) {
    v("conversations", conversations, "LLaVA's .json or .jsonl about the training images");
    v("val_conversations", val_conversations, "the same about the validation images");
    v("tokenizer", tokenizer, "tokenizer.json or another form; it travels in the weights");
    v("template", chat,
      "how turns become a text: short, v1, plain, llava_llama_2, mpt, llava_v0, chatml_direct, llama_3");
    v("length", length, between(2, 1 << 20), "tokens of a conversation, those of the image among them");
    v("images", images, "what the projector reads of an image");
    v("language", language, "the language model; its vocabulary follows from the tokeniser");
    v("lora_rank", lora_rank, between(0, 4096),
      "rank of LoRA in the language model, 0 = all of it is learned");
    v("lora_alpha", lora_alpha, above(0), "LoRA: its factor is alpha / rank");
    v("lora_targets", lora_targets, "LoRA: the layers that are adapted");
  }
};

// What such a task is made of, for a program that talks to it.
struct AnsweringModel {
  models::LlavaConfig images;
  std::shared_ptr<models::Backbone> vision;
  models::Projector projector{nullptr};
  std::shared_ptr<models::LanguageModel> language;
  Tokeniser tokeniser;
  int64_t image_token = 0;
  std::string chat;  // name of its template
};
class Answers {
 public:
  virtual ~Answers() = default;
  virtual AnsweringModel answering_model() const = 0;
};

TaskKind instruct_kind();

}  // namespace tessera::tasks
