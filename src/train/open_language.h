// A language model, or one that reads images too, ready to answer: from a run of ours, or
// from the folders in which such models are published.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/transform.h"
#include "models/llava.h"
#include "tasks/language_part.h"
#include "text/tokeniser.h"
#include "train/open_task.h"

namespace tessera::train {

struct OpenedLanguage {
  std::shared_ptr<models::LanguageModel> language;  // in evaluation mode on the CPU
  std::shared_ptr<models::Llava> llava;             // with `language` in it; null for a model of texts alone
  std::optional<Tokeniser> tokeniser;               // none where none was found
  tasks::ImageLogits image_logits;                  // of a model that reads images in another way; no cache
  int64_t per_image = 0;                            // places that an image takes there
  int64_t image_token = -1;                         // the id that stands for an image's features
  data::Preprocess preprocess;                      // of images
  std::vector<int64_t> end_tokens;  // that its files name as the end of a text; empty where none do
  std::string chat_template;        // a name of text/conversation.h, "" = plain continuation
  std::string file;                 // the weights file
  std::vector<std::string> notes;   // for people
};

// A task as what has a language model; a usage error that names it, and the tasks that have one.
const tasks::Answers& require_answers(const OpenedTask& opened);

// `path`: a run or weights file of a task with a language model; or a folder with config.json (model_type gpt2, llama, qwen2, mistral, bloom, mpt or llava) and the weights in any
// form, sharded too, or a weights file in such a folder. `tokenizer`: a file or folder instead of that one's own.
// `dtype`: of the weights in memory; they are read tensor by tensor, so that memory holds them once. Throws Error:
// names missing, left over, of another shape; a tokeniser with more tokens than the model has embeddings.
OpenedLanguage open_language(const std::string& path, const std::string& tokenizer, torch::ScalarType dtype);

}  // namespace tessera::train
