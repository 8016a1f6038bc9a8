// What tasks with a language model share: its tokeniser, its first weights, and what a program that talks to it needs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/llava.h"
#include "tasks/registry.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// Logits [rows, tokens, vocabulary] of ids [rows, tokens] in which the image token stands in the places of the images
// [images, 3, height, width], in order over the rows.
using ImageLogits = std::function<torch::Tensor(const torch::Tensor& images, const torch::Tensor& ids)>;

// These parts of such a task are for a program that talks to it. Without a tower and without image_logits it reads no images.
struct AnsweringModel {
  std::shared_ptr<models::LanguageModel> language;
  Tokeniser tokeniser;
  std::string chat = {};  // name of its template; "" = texts are continued as they are
  models::LlavaConfig images = {};
  std::shared_ptr<models::Backbone> vision = {};
  models::Projector projector{nullptr};
  int64_t image_token = -1;
  // Where images are no words of a projector (Frozen, Flamingo); it holds the model.
  ImageLogits image_logits = {};
  int64_t per_image = 0;  // places among the words that an image takes then
};
class Answers {
 public:
  virtual ~Answers() = default;
  virtual AnsweringModel answering_model() const = 0;
};

// The tokeniser that the weights carry, else that of the file `path`; "bytes": a token for each byte and one that ends a
// text. None for a plan on a machine that lacks the file. A usage error naming `who` where `path` is empty.
std::optional<Tokeniser> open_task_tokeniser(const std::string& path, const TaskSetup& setup,
                                             const std::string& who);

// The id between documents: the token that ends a text, else the one that begins one. A usage error where the tokeniser
// has neither.
int32_t separator_of(const Tokeniser& tokeniser, const std::string& path);

// A task whose language model may begin with the weights of another one.
class LanguageBeginner {
 public:
  virtual ~LanguageBeginner() = default;
  // task.language_weights: a run of the task language, or a folder in which language models are published; "" = drawn.
  virtual std::string language_weights() const = 0;
  virtual void begin_language(const models::LanguageModel& stored, const Tokeniser& tokeniser) = 0;
};

// Copies all tensors but those of LoRA. Rows of the embedding behind the stored ones keep their values. Usage errors:
// `theirs` is not `tokeniser`; tensors of another shape. `path` stands in errors.
void copy_language_weights(const models::LanguageModel& stored, const Tokeniser& theirs,
                           models::LanguageModel& model, const Tokeniser& tokeniser, const std::string& path);

}  // namespace tessera::tasks
