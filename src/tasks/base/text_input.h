// Captions as numbers for a text model: by the tokeniser that a recipe names, or by bytes where it names none. It
// travels in the metadata of the weights.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/value.h"
#include "data/transforms/transform.h"
#include "tasks/base/paired.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

class TextInput {
 public:
  static constexpr int64_t kLearnedTokens = 4096;

  // "bytes": a byte is its value plus 1, 0 is padding, 257 begins and 258 ends a text. "learned": a byte-level BPE of at
  // most kLearnedTokens, learned from the captions of `train`; without images it is bytes with so many ids, for
  // descriptions. Else a file or folder that Tokeniser::load reads. `stored` is the metadata of weights: what they carry
  // ("tokenizer") is taken instead.
  TextInput(const std::string& tokenizer, const Value& stored, const data::Source* train = nullptr);

  int64_t size() const;  // ids are below
  int32_t start() const;
  int32_t end() const;
  int32_t pad() const;

  // A text as `length` ids: start, tokens, end, padding. What there is no place for is cut in front of the end; `cut`
  // takes how many tokens. Fails on bytes that are no UTF-8, which `where` names.
  std::vector<int32_t> fit(std::string_view text, int64_t length, const std::string& where,
                           int64_t* cut = nullptr) const;
  // Text of ids up to the first end, without special tokens.
  std::string decode(std::span<const int32_t> ids) const;

  // Texts as int32 [texts, length], each as fit() gives it; those that were too long are added to `cut`.
  torch::Tensor encode(std::span<const std::string> texts, int64_t length, CutTexts* cut = nullptr) const;

  // Task::metadata of a task that reads texts with it: {"tokenizer": its whole definition, or "bytes"}.
  Value metadata() const;
  // Whether weights with this metadata were trained with the same tokeniser.
  bool is_that_of(const Value& stored) const;
  // The token embedding of a file, or of none yet (""), has so many rows: unless they are this tokeniser's, texts are
  // refused from now on. Images need no tokeniser.
  void expect_rows(int64_t rows, const std::string& file) { rows_ = rows, file_ = file; }
  // A usage error unless the rows are this tokeniser's.
  void check_rows() const;

 private:
  std::optional<Tokeniser> tokeniser_;
  int64_t rows_ = 0;  // that are expected; 0 = none are
  std::string file_;
  int64_t bytes_size_ = 259;  // ids without a tokeniser
};

// "tokens", i32 [length]: a caption of the sample as TextInput::fit gives it. Where there are several captions, one is drawn by the
// sample's stream, or the first is taken.
std::shared_ptr<const data::Transform> make_text_transform(const TextInput& input, int64_t length, bool draw);

// Vectors [texts, width] of texts by `embed`, which takes int32 [some texts, length] as TextInput::encode gives them and
// returns [some texts, width]; a few hundred texts at a time. Texts that were too long are added to `cut`.
torch::Tensor embed_in_batches(const TextInput& input, std::span<const std::string> texts, int64_t length,
                               int64_t width, CutTexts* cut,
                               const std::function<torch::Tensor(const torch::Tensor& ids)>& embed);

// A usage error unless the first sample of each source has a caption; null sources are passed over.
void require_captions(std::initializer_list<const data::Source*> sources, const std::string& who);

}  // namespace tessera::tasks
