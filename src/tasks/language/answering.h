// Visual question answering with a language model: the base of LLaVA, Frozen and Flamingo. They differ in how
// the language model sees an image (ImageReader).
//
//   loss = - sum over the tokens of answers of log p(token | images, all tokens before it)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/generation.h"
#include "models/language/language_model.h"
#include "tasks/base/task_kind.h"
#include "tasks/language/conversation_input.h"
#include "tasks/language/language_part.h"

namespace tessera::tasks {

struct AnsweringConfig {
  std::string conversations, val_conversations, tokenizer, language_weights, chat = "short";
  QuestionOrder question_order = QuestionOrder::given;
  int64_t length = 128, shots = 0;
  std::vector<int64_t> eval_shots = {0};
  bool measure_blank = false;
  int64_t document_images = 0;  // most images in a document; 0: the task reads only conversations
  models::LanguageConfig language{.vocabulary = 1, .dim = 256, .depth = 6, .heads = 4, .context = 512};
  int64_t lora_rank = 0;
  double lora_alpha = 16;
  std::vector<std::string> lora_targets = {"q_proj", "v_proj"};

  template <class V>
  void visit_answering(V& v) {
    v("conversations", conversations, "LLaVA's .json or .jsonl about the training images");
    v("val_conversations", val_conversations, "the same about the validation images");
    v("tokenizer", tokenizer, "tokenizer.json or another form, or bytes; it is stored in the weights");
    v("template", chat,
      "format of turns as text: short, v1, vicuna_v1, llava_v1, plain, v0_plain, "
      "llava_llama_2, mistral_instruct, mpt, llava_v0, chatml_direct, llama_3");
    v("question_order", question_order, choice<QuestionOrder>(),
      "order of a conversation in training: given; drawn if no question builds on another");
    v("length", length, between(2, 1 << 20), "tokens of a conversation, including those of the image");
    v("shots", shots, between(0, 64), "examples before each training conversation, with their images");
    v("eval_shots", eval_shots, between(0, 64), "numbers of examples before the evaluated questions");
    v("measure_blank", measure_blank, "measure with blank images too: the score of the questions alone");
    v("language", language, "the language model; the tokeniser sets its vocabulary");
    v("language_weights", language_weights,
      "its first weights: a run of the task language, or a folder of a published model; empty: drawn");
    v("lora_rank", lora_rank, between(0, 4096), "rank of LoRA in the language model, 0 = train all of it");
    v("lora_alpha", lora_alpha, above(0), "LoRA: its factor is alpha / rank");
    v("lora_targets", lora_targets, "LoRA: the layers that are adapted");
  }
};

// Token ids int64 [batch, tokens] on the model's device, and the same in main memory: which images a text has is decided there,
// without waiting for the device.
struct TextIds {
  torch::Tensor there, host;
};

// Added by a task to its tower: a language model, and how it sees images.
class ImageReader : public torch::nn::Module {
 public:
  virtual void initialise(uint64_t seed) = 0;
  virtual const std::shared_ptr<models::LanguageModel>& language() const = 0;
  // Returns the number of token positions for an image of this side.
  virtual int64_t per_image(int64_t side) const = 0;
  // Encodes images [images, 3, height, width] to [images, features, width].
  virtual torch::Tensor features(const torch::Tensor& images, const models::Context& context) = 0;
  // True if each feature takes the position of a token; logits() and begin() of this class rely on it.
  virtual bool among_words() const { return true; }
  // Returns logits [batch, tokens, vocabulary]. `image_token` marks the
  // positions of the images [images, 3, height, width], in order over the batch. In a batch without
  // `image_token` the images have no effect, but every parameter has a gradient.
  virtual torch::Tensor logits(const torch::Tensor& images, const TextIds& ids, int64_t image_token,
                               const models::Context& context);
  // As in models::ImageReading.
  virtual models::NextTokenModel begin(const torch::Tensor& prompt, const torch::Tensor& features,
                                       int64_t image_token, int64_t beams);
};

// Returns word embeddings, with `features` [images, places, dim] at the image token's positions.
torch::Tensor embed_with_features(const models::LanguageModel& language, const TextIds& ids,
                                  int64_t image_token, const torch::Tensor& features);

// Returns the language model of a config, with LoRA if configured.
std::shared_ptr<models::LanguageModel> make_language_model(const AnsweringConfig& config);

// `who`: "task instruct". `make_reader` gets the settings with the vocabulary of the tokeniser.
std::unique_ptr<Task> make_answering_task(
    const TaskSetup& setup, const AnsweringConfig& config, const std::string& who,
    const std::function<std::shared_ptr<ImageReader>(
        const AnsweringConfig& config, const std::shared_ptr<models::Backbone>& tower)>& make_reader);

// The row of a task whose language model sees images through Reader(config, spec of the tower, tower).
template <class Reader, class Config>
TaskKind answering_kind(const char* name, const char* summary, const char* command = nullptr) {
  const auto make = [who = text("task ", name)](const TaskSetup& setup) -> std::unique_ptr<Task> {
    const auto config = read_task<Config>(setup.settings);
    return make_answering_task(
        setup, config, who,
        [&](const AnsweringConfig& complete, const std::shared_ptr<models::Backbone>& tower) {
          Config all = config;
          static_cast<AnsweringConfig&>(all) = complete;
          return std::make_shared<Reader>(all, setup.model, tower);
        });
  };
  return task_kind<void, Config>(
      name, summary,
      {.command = command,
       .make = make,
       .path_keys = {"conversations", "val_conversations", "tokenizer", "language_weights"}});
}

TaskKind instruct_kind();
TaskKind frozen_kind();

}  // namespace tessera::tasks
