// What tasks with a language model share: its tokeniser, its first weights, and what a program that talks to it needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/base/image_reading.h"
#include "models/language/language_model.h"
#include "tasks/base/registry.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// These parts of such a task are for a program that talks to it.
struct AnsweringModel {
  std::shared_ptr<models::LanguageModel> language;
  Tokeniser tokeniser;
  std::string chat = {};  // name of its template; "" = texts are continued as they are
  std::optional<models::ImageReading> images = {};  // holds the model; none where it reads texts alone
};
class Answers {
 public:
  virtual ~Answers() = default;
  virtual AnsweringModel answering_model() const = 0;
};

// The tokeniser that the weights carry, else that of the file `path`; "bytes": a token for each byte and one that ends a
// text. None for a plan on a machine that lacks the file, which counts with `vocabulary` tokens and needs more than one. A
// usage error naming `who` where `path` is empty.
std::optional<Tokeniser> open_task_tokeniser(const std::string& path, int64_t vocabulary,
                                             const TaskSetup& setup, const std::string& who);

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
