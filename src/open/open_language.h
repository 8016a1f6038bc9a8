// A language model, or one that reads images too, ready to answer: from a run of ours, or
// from the folders in which such models are published.
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

// Where a language model lies.
struct LanguageSource {
  // A run or weights file of a task with a language model; a folder with config.json (model_type gpt2, llama, qwen2,
  // mistral, bloom, mpt, t5, mt5 or llava) and the weights in any form, sharded too, or a weights file in such a folder;
  // or the weights of OpenFlamingo, which are what it adds to two other models.
  std::string weights;
  std::string tokenizer = {};  // a file or folder instead of the folder's own
  std::string language = {};   // OpenFlamingo: the folder of its language model
  std::string tower = {};      // and weights with its image tower, in any form
};

struct OpenedLanguage {
  std::shared_ptr<models::LanguageModel> language;   // in evaluation mode on the CPU; null for
  std::shared_ptr<models::Seq2Seq> encoder_decoder;  // one that reads a text and writes another
  int64_t start_token = 0;                           // what that other text begins with, unseen
  std::optional<models::ImageReading> images;        // holds the model; none where it reads texts alone
  std::optional<Tokeniser> tokeniser;                // always there once it is opened
  int64_t vocabulary = 0;                            // scores of a next token
  int64_t context = 0;                               // tokens that it reads at once; 0 = as many as there are
  data::Preprocess preprocess;                       // of images
  std::vector<int64_t> end_tokens;  // that its files name as the end of a text; empty where none do
  std::string chat_template;        // a name of text/conversation.h, "" = plain continuation
  std::string file;                 // the weights file
  std::vector<std::string> notes;   // for people
};

// A task as what has a language model; a usage error that names it, and the tasks that have one.
const tasks::Answers& require_answers(const OpenedTask& opened);

// `dtype`: of the weights in memory; they are read tensor by tensor, so that memory holds them once. Throws Error:
// names missing, left over, of another shape; a tokeniser with more tokens than the model has embeddings.
OpenedLanguage open_language(const LanguageSource& source, torch::ScalarType dtype);
// The same where a decoder is needed: a usage error for an encoder-decoder.
OpenedLanguage open_decoder(const std::string& path, torch::ScalarType dtype);

// OpenFlamingo (Awadalla et al. 2023): the resampler and the gated layers of this file on the two models of the source.
bool is_open_flamingo(const WeightFile& file);
OpenedLanguage open_flamingo(const LanguageSource& source, const WeightFile& file, torch::ScalarType dtype);

}  // namespace tessera::train
