// Converts captions to ids for a text model, with the recipe's tokeniser or else as bytes. The definition is
// stored in the metadata of the weights.
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

#include "core/random.h"
#include "core/value.h"
#include "data/transforms/transform.h"
#include "tasks/base/paired.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// Returns the id that a model reads in place of a token that it must predict (Devlin et al. 2019): `mask` with
// probability 0.8, any of `vocabulary` ids with 0.1, else the token itself.
int32_t masked_token(int32_t token, int32_t mask, int64_t vocabulary, RandomStream& random);

class TextInput {
 public:
  static constexpr int64_t kLearnedTokens = 4096;

  // `tokenizer` is one of
  //   "bytes": id = byte + 1, 0 is padding, 257 begins and 258 ends a text
  //   "learned": a byte-level BPE of at most kLearnedTokens, learned from the captions of `train`; without
  //   data, bytes with kLearnedTokens ids, for descriptions
  //   else a file or folder for Tokeniser::load.
  // A tokeniser in `stored`, the metadata of weights ("tokenizer"), takes precedence.
  TextInput(const std::string& tokenizer, const Value& stored, const data::Source* train = nullptr);

  int64_t size() const;  // upper bound of ids, exclusive
  int32_t start() const;
  int32_t end() const;
  int32_t pad() const;
  // Throws a usage error that begins with `who` if the tokeniser has no padding token: pad() is then an ordinary token,
  // and a model that masks it would not read all texts.
  void require_padding(const std::string& who) const;

  // Returns a text as `length` ids: start, tokens, end, padding. Truncation keeps the end token; `cut` gets
  // the number of lost tokens. Throws on invalid UTF-8, naming `where`.
  std::vector<int32_t> fit(std::string_view text, int64_t length, const std::string& where,
                           int64_t* cut = nullptr) const;
  // Returns the characters (Unicode code points) of each token of a text, without the tokens that begin and end it.
  std::vector<TokenSpan> spans(std::string_view text) const;
  // Returns the text of ids up to the first end, without special tokens.
  std::string decode(std::span<const int32_t> ids) const;

  // Returns int32 [texts, length], each row as from fit(); adds texts that are too long to `cut`.
  torch::Tensor encode(std::span<const std::string> texts, int64_t length, CutTexts* cut = nullptr) const;

  // Task::metadata of a task that reads texts: {"tokenizer": the full definition, or "bytes"}.
  Value metadata() const;
  // True if weights with this metadata were trained with the same tokeniser.
  bool is_that_of(const Value& stored) const;
  // Records the `rows` of the token embedding in `file` ("" if not from a file). If they do not match this
  // tokeniser, texts are refused from now on. Images need no tokeniser.
  void expect_rows(int64_t rows, const std::string& file) { rows_ = rows, file_ = file; }
  // Throws a usage error unless the rows match this tokeniser.
  void check_rows() const;

 private:
  std::optional<Tokeniser> tokeniser_;
  int64_t rows_ = 0;  // expected; 0 = no expectation
  std::string file_;
  int64_t bytes_size_ = 259;  // ids without a tokeniser
};

// Field "tokens", i32 [length]: a caption of the sample, encoded by TextInput::fit. `draw`: picks a random
// caption if there are several; otherwise takes the first.
std::shared_ptr<const data::Transform> make_text_transform(const TextInput& input, int64_t length, bool draw);

// Returns vectors [texts, width]. `embed` maps int32 [some texts, length], as from TextInput::encode, to
// [some texts, width]; it gets a few hundred texts at a time. Adds texts that are too long to `cut`.
torch::Tensor embed_in_batches(const TextInput& input, std::span<const std::string> texts, int64_t length,
                               int64_t width, CutTexts* cut,
                               const std::function<torch::Tensor(const torch::Tensor& ids)>& embed);

// Throws a usage error unless the first sample of each source has a caption; skips null sources.
void require_captions(std::initializer_list<const data::Source*> sources, const std::string& who);

}  // namespace tessera::tasks
