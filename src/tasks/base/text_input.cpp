#include "tasks/base/text_input.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/sources/interleaved.h"
#include "text/bpe_trainer.h"
#include "text/tokeniser.h"

namespace tessera::tasks {
namespace {

constexpr const char *kBytes = kBytesTokeniser, *kLearned = "learned";
constexpr int64_t kSamplesToLearnFrom = 100000;
constexpr int64_t kTextsOfBatch = 256;
constexpr int32_t kByteStart = 257, kByteEnd = 258;

std::vector<int32_t> fit_bytes(std::string_view text, int64_t length, int64_t& cut) {
  const int64_t room = std::max<int64_t>(0, length - 2), kept = std::min(room, std::ssize(text));
  cut = std::ssize(text) - kept;
  std::vector<int32_t> ids = {kByteStart};
  for (const char c : text.substr(0, static_cast<size_t>(kept)))
    ids.push_back(static_cast<unsigned char>(c) + 1);
  ids.push_back(kByteEnd);
  ids.resize(static_cast<size_t>(length), 0);
  return ids;
}

// Deterministic: the same captions give the same tokeniser on every process and after every restart.
Tokeniser learn_tokeniser(const data::Source& source) {
  BpeTrainer trainer({.vocabulary = TextInput::kLearnedTokens,
                      .special = {"<pad>", "<|startoftext|>", "<|endoftext|>"},
                      .begin = "<|startoftext|>",
                      .end = "<|endoftext|>",
                      .prefix_space = true});
  const int64_t count = std::min<int64_t>(source.size(), kSamplesToLearnFrom);
  for (int64_t i = 0; i < count; ++i) {
    const data::RawSample sample = source.read(i);
    for (const std::string& caption : sample.annotation.captions) {
      if (!is_utf8(caption)) fail(sample.name, ": the caption is no UTF-8");
      trainer.add(caption);
    }
  }
  return Tokeniser::from_definition(trainer.learn(), "the tokeniser learned from captions");
}

}  // namespace

int32_t masked_token(int32_t token, int32_t mask, int64_t vocabulary, RandomStream& random) {
  const double kind = random.uniform();
  if (kind < 0.8) return mask;
  return kind < 0.9 ? static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))) : token;
}

TextInput::TextInput(const std::string& tokenizer, const Value& stored, const data::Source* train) {
  const Value* kept = stored.is_table() ? stored.find("tokenizer") : nullptr;
  if (kept && kept->is_string()) {
    if (kept->as_string() != kBytes)
      tokeniser_ = Tokeniser::from_definition(kept->as_string(), "the weights' tokenizer");
  } else if (tokenizer == kLearned && train) {
    require_captions({train}, "task.tokenizer = \"learned\"");
    tokeniser_ = learn_tokeniser(*train);
  } else if (tokenizer == kLearned) {
    bytes_size_ = kLearnedTokens;
  } else if (tokenizer != kBytes && stored_tokeniser(tokenizer) != kBytes) {
    tokeniser_ = Tokeniser::load(tokenizer);
  }
  if (tokeniser_ && tokeniser_->special().end < 0)
    fail_usage("task.tokenizer = \"", tokenizer, "\" has no token that ends a text, as a text tower needs");
  if (tokeniser_) {
    const std::vector<int32_t> ids = tokeniser_->fit("a", 16, pad()).ids;
    if (std::find(ids.begin(), ids.end(), end()) == ids.end())
      fail_usage(
          "task.tokenizer = \"", tokenizer,
          "\" adds no end token after a text, as a text tower needs: ", "its tokenizer.json has no template");
  }
}

int64_t TextInput::size() const { return tokeniser_ ? tokeniser_->size() : bytes_size_; }
int32_t TextInput::start() const { return tokeniser_ ? tokeniser_->special().begin : kByteStart; }
int32_t TextInput::end() const { return tokeniser_ ? tokeniser_->special().end : kByteEnd; }
// OpenCLIP pads with 0, whatever the tokeniser defines.
int32_t TextInput::pad() const {
  if (!tokeniser_) return 0;
  const int32_t own = tokeniser_->special().pad;
  return own >= 0 ? own : 0;
}

void TextInput::require_padding(const std::string& who) const {
  if (tokeniser_ && tokeniser_->special().pad < 0)
    fail_usage(who, ": the tokeniser has no padding token, must have one such as [PAD], which BERT masks");
}

std::vector<int32_t> TextInput::fit(std::string_view text, int64_t length, const std::string& where,
                                    int64_t* cut) const {
  check_rows();
  if (!is_utf8(text)) fail(where, ": the text is no UTF-8");
  int64_t left = 0;
  std::vector<int32_t> ids;
  if (tokeniser_) {
    FittedText fitted = tokeniser_->fit(text, length, pad());
    left = fitted.cut;
    ids = std::move(fitted.ids);
  } else {
    ids = fit_bytes(text, length, left);
  }
  if (cut) *cut = left;
  return ids;
}

std::vector<TokenSpan> TextInput::spans(std::string_view text) const {
  if (tokeniser_) return tokeniser_->encode_with_offsets(text, /*special=*/false).offsets;
  std::vector<TokenSpan> bytes;
  int64_t character = -1;
  for (const char byte : text) {
    character += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    bytes.push_back({character, character + 1});
  }
  return bytes;
}

std::string TextInput::decode(std::span<const int32_t> ids) const {
  check_rows();
  std::vector<int32_t> kept;
  for (const int32_t id : ids) {
    if (id == end()) break;
    if (id != start() && id != pad()) kept.push_back(id);
  }
  if (tokeniser_) return std::string(trim(tokeniser_->decode(kept)));
  std::string out;
  for (const int32_t id : kept)
    if (id >= 1 && id <= 256) out += static_cast<char>(id - 1);
  return is_utf8(out) ? out : printable(out, out.size());
}

torch::Tensor TextInput::encode(std::span<const std::string> texts, int64_t length, CutTexts* cut) const {
  const torch::Tensor all = torch::empty({std::ssize(texts), length}, torch::kInt32);
  auto* to = all.mutable_data_ptr<int32_t>();
  for (const std::string& one : texts) {
    int64_t left = 0;
    const std::vector<int32_t> ids = fit(one, length, "text '" + printable(one, 60) + "'", &left);
    to = std::copy(ids.begin(), ids.end(), to);
    if (cut && left > 0) cut->add(one, left);
  }
  return all;
}

Value TextInput::metadata() const {
  Value out;
  out.set("tokenizer", tokeniser_ ? Value(tokeniser_->definition()) : Value(kBytes));
  return out;
}

bool TextInput::is_that_of(const Value& stored) const {
  const Value* tokenizer = stored.is_table() ? stored.find("tokenizer") : nullptr;
  return tokenizer && *tokenizer == *metadata().find("tokenizer");
}

void TextInput::check_rows() const {
  if (rows_ > 0 && rows_ != size())
    fail_usage(file_.empty() ? "" : "'" + file_ + "': ", "the tokeniser has ", size(),
               " tokens, the model's token embedding ", rows_,
               " rows: they must be equal; give the model's own tokeniser (--tokenizer FILE, in a recipe "
               "task.tokenizer)");
}

namespace {

class TextTransform final : public data::Transform {
 public:
  TextTransform(const TextInput& input, int64_t length, bool draw)
      : input_(input), draw_(draw), fields_{{"tokens", DType::i32, {length}}} {
    if (length < 3)
      fail_usage("texts of ", length, " tokens, must be at least 3: start, one of the text, end");
  }
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream& random,
             std::span<const data::Slot> out) const override {
    const auto& captions = sample.annotation.captions;
    check(!captions.empty(), sample.name, ": has no caption");
    const std::string& caption = captions[draw_ ? random.below(captions.size()) : 0];
    const std::vector<int32_t> ids = input_.fit(caption, fields_[0].shape[0], sample.name);
    std::copy(ids.begin(), ids.end(), out[0].as<int32_t>());
  }

 private:
  TextInput input_;
  bool draw_;
  std::vector<data::Field> fields_;
};

}  // namespace

std::shared_ptr<const data::Transform> make_text_transform(const TextInput& input, int64_t length,
                                                           bool draw) {
  return std::make_shared<TextTransform>(input, length, draw);
}

torch::Tensor embed_in_batches(const TextInput& input, std::span<const std::string> texts, int64_t length,
                               int64_t width, CutTexts* cut,
                               const std::function<torch::Tensor(const torch::Tensor& ids)>& embed) {
  const torch::Tensor ids = input.encode(texts, length, cut);
  if (ids.size(0) == 0) return torch::zeros({0, width});
  // Batches texts of similar length: a tower computes only up to the longest of its batch.
  const torch::Tensor order = ids.ne(input.pad()).sum(1).argsort(/*stable=*/true, 0);
  std::vector<torch::Tensor> parts;
  for (int64_t first = 0; first < ids.size(0); first += kTextsOfBatch)
    parts.push_back(embed(ids.index_select(0, order.slice(0, first, first + kTextsOfBatch))));
  const torch::Tensor rows = torch::cat(parts);
  return rows.index_select(0, order.argsort().to(rows.device()));
}

void require_captions(std::initializer_list<const data::Source*> sources, const std::string& who) {
  for (const data::Source* source : sources)
    if (source && data::document_images(*source))
      fail_usage(who, " needs images with captions, not ", source->describe(),
                 ": a task that reads several images learns documents");
  for (const data::Source* source : sources)
    if (source && source->size() > 0 && source->read(0).annotation.captions.empty())
      fail_usage(who, " needs captions, which ", source->describe(), " does not have");
}

}  // namespace tessera::tasks
