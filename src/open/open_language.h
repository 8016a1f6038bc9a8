// Opens a language model, possibly one that reads images, ready to answer, from a Tessera run or a published
// folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/transforms/transform.h"
#include "io/weights/weight_file.h"
#include "models/base/generation.h"
#include "models/language/language_model.h"
#include "models/language/seq2seq.h"
#include "open/open_task.h"
#include "tasks/language/language_part.h"
#include "text/tokeniser.h"

namespace tessera::train {

// The location of a language model.
struct LanguageSource {
  // A run or weights file of a task with a language model; or a folder with config.json (model_type gpt2,
  // llama, qwen2, mistral, bloom, mpt, t5, mt5 or llava) and weights in any form, also sharded; or a weights
  // file in such a folder; or the weights of OpenFlamingo, which extend two other models.
  std::string weights;
  std::string tokenizer = {};  // a file or folder instead of the folder's own
  std::string language = {};   // OpenFlamingo: the folder of its language model
  std::string tower = {};      // OpenFlamingo: weights with its image tower, in any form
  std::string key = {};        // PyTorch archives: the dictionary to read, "" = the usual one
  bool raw = false;            // of a run: the raw weights instead of their moving average
};

struct OpenedLanguage {
  std::shared_ptr<models::LanguageModel> language;   // model in evaluation mode on the CPU; null for
  std::shared_ptr<models::Seq2Seq> encoder_decoder;  // a model that reads one text and writes another
  int64_t start_token = 0;                           // the first, hidden token of that other text
  std::optional<models::ImageReading> images;        // the image tower; none if it reads only texts
  std::optional<Tokeniser> tokeniser;                // always set once opened
  int64_t vocabulary = 0;                            // scores of a next token
  int64_t context = 0;                               // tokens in its context; 0 = unlimited
  data::Preprocess preprocess;                       // of images
  std::vector<int64_t> end_tokens;  // end-of-text tokens in its files; empty if there are none
  std::string chat_template;        // a name of text/conversation.h, "" = plain continuation
  std::string file;                 // the weights file
  std::vector<std::string> notes;   // for people
};

// True if `path` is a run or file of a task with a language model, or a published folder with one.
bool is_language_model(const std::string& path);

// Returns the task as one with a language model. Throws a usage error that names it and the tasks that have
// one.
const tasks::Answers& require_answers(const OpenedTask& opened);

// Opens a model with weights of type `dtype`. Reads tensor by tensor, so memory holds the weights once.
// Throws Error for names that are missing or left over, for other shapes, and for more tokens than
// embeddings.
OpenedLanguage open_language(const LanguageSource& source, torch::ScalarType dtype);
// Opens a decoder. Throws a usage error for an encoder-decoder.
OpenedLanguage open_decoder(const std::string& path, torch::ScalarType dtype);

// True if the file contains the resampler and gated layers of OpenFlamingo (Awadalla et al. 2023).
bool is_open_flamingo(const WeightFile& file);
// Adds the resampler and gated layers in this file to the two models of the source.
OpenedLanguage open_flamingo(const LanguageSource& source, const WeightFile& file, torch::ScalarType dtype);

}  // namespace tessera::train
