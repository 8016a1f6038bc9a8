// Shared by tasks with a language model: tokeniser, initial weights, and the interface for chat programs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/base/generation.h"
#include "models/language/language_model.h"
#include "models/language/seq2seq.h"
#include "tasks/base/findings.h"
#include "tasks/base/registry.h"
#include "tasks/base/sample_rows.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// The parts of such a task that a chat program uses.
struct AnsweringModel {
  std::shared_ptr<models::LanguageModel> language;  // null for an encoder and decoder
  Tokeniser tokeniser;
  std::string chat = {};                            // name of its chat template; "" = plain continuation
  std::optional<models::ImageReading> images = {};  // the image tower; none if the model reads only texts
  std::shared_ptr<models::Seq2Seq> encoder_decoder =
      {};  // with its rows, the decoder's first token and its last
  int64_t vocabulary = 0, start = 0, end = -1;
};
class Answers {
 public:
  virtual ~Answers() = default;
  virtual AnsweringModel answering_model() const = 0;
};

// Returns the tokeniser stored in the weights, or else of the file `path`; "bytes": one token per byte and
// one that ends a text. Returns none for a plan on a machine without the file; the plan then uses
// `vocabulary` tokens, which must exceed one. Throws a usage error naming `who` if `path` is empty.
std::optional<Tokeniser> open_task_tokeniser(const std::string& path, int64_t vocabulary,
                                             const TaskSetup& setup, const std::string& who);

// Returns the id that separates documents: the token that ends a text, or else begins one. Throws a usage
// error if the tokeniser has neither.
int32_t separator_of(const Tokeniser& tokeniser, const std::string& path);

// Returns the loss, the number and the right ones of each sample's tokens, double [batch, 3]: logits [batch, tokens,
// vocabulary], labels int64 [batch, tokens], kNotLearned for tokens that do not count.
torch::Tensor token_sums(const torch::Tensor& logits, const torch::Tensor& labels);
// Returns the sum of the tokens' cross entropy, with the share of right ones as its only term. Logits and labels as for token_sums().
// `words`: size of the vocabulary; the logits may be those of one process's words (LanguageModel::logits_share).
Loss token_loss(const torch::Tensor& logits, const torch::Tensor& labels, int64_t words);
// Returns the share of right ones among the tokens with a label, counted on the device.
Term right_tokens(const torch::Tensor& right, const torch::Tensor& labels);
// Returns perplexity (`main`), loss and accuracy of such rows.
std::vector<Metric> token_metrics(const MetricInfo& main, const SampleRows& rows);

// A task that can initialise its language model from the weights of another.
class LanguageBeginner {
 public:
  virtual ~LanguageBeginner() = default;
  // task.language_weights: a run of the task language, or a folder of a published language model; "" =
  // random.
  virtual std::string language_weights() const = 0;
  virtual void begin_language(const models::LanguageModel& stored, const Tokeniser& tokeniser) = 0;
};

// Copies all tensors except those of LoRA. Embedding rows beyond the stored ones keep their values. Throws
// usage errors if `theirs` differs from `tokeniser`, or for tensors of another shape. `path` is for errors.
void copy_language_weights(const models::LanguageModel& stored, const Tokeniser& theirs,
                           models::LanguageModel& model, const Tokeniser& tokeniser, const std::string& path);

}  // namespace tessera::tasks
