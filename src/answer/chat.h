// Conversations with a language model, also about images, and texts that it continues: `tessera chat`, served.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answerer.h"
#include "open/open_language.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "text/conversation.h"

namespace tessera::answer {

// How an answer is written.
struct ChatOptions {
  std::string chat;
  std::vector<std::string> stops;
  int64_t max_tokens = 256, top_k = 0, beams = 1, no_repeat = 0, seed = 0;
  double temperature = 0, top_p = 1, min_p = 0, repetition = 1;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("template", chat,
      "v1, plain, llava_llama_2, mpt, llava_v0, chatml_direct, llama_3 or short (default: the model's)");
    v("raw", raw, "continue the text as it is, without a template");
    v("max_tokens", max_tokens, between(1, 1 << 20), "most tokens of an answer");
    v("temperature", temperature, between(0, 100), "temperature; 0 picks the likeliest token");
    v("top_k", top_k, between(0, 1 << 22), "sample from the k likeliest tokens, 0 = all");
    v("top_p", top_p, above_to(0, 1), "sample from the likeliest tokens with this total probability");
    v("min_p", min_p, between(0, 1), "leave out tokens below this share of the likeliest one's probability");
    v("repetition_penalty", repetition, between(0.01, 100), "penalty above 1 for tokens that occurred");
    v("no_repeat_ngram", no_repeat, between(0, 1024), "never repeat n tokens in a row, 0 = off");
    v("beams", beams, between(1, 256), "beams of the search");
    v("stop", stops, "words that end an answer");
    v("seed", seed, between(0, 1000000000), "seed of the sampling");
  }
  // Throws a usage error for options that do not go together.
  void check() const;
};

struct ChatSource {
  train::LanguageSource source;
  std::string adapter = {}, precision = "fp32";  // of PEFT; fp32, bf16 or int8
  bool merge = false;
};

// Opens a language model and its adapter, on the CPU. Throws a usage error for a template of an encoder-decoder.
train::OpenedLanguage open_chat_model(const ChatSource& source, const std::string& chat);

// While it lives, this thread computes as language models need: without gradients, in the arithmetic of `precision`,
// with each weight packed once. Models of other answers must not compute meanwhile: let_others() sees to that.
struct ChatScope {
  explicit ChatScope(const std::string& precision) : arithmetic({.int8 = precision == "int8"}) {}
  torch::NoGradGuard no_grad;
  ops::InferenceScope arithmetic;
  ops::PackedOnly memory;
};

struct WrittenText {
  std::string text;
  int64_t prompt_tokens = 0, tokens = 0;
  double seconds = 0;
  const char* end = "length";  // or "stop", "interrupted"
};
// {"answer", "end", "prompt_tokens", "tokens", "seconds"}.
nlohmann::ordered_json json_of(const WrittenText& answer);

// Follows an answer while it is written. `show` gets its text piece by piece, without the beginning of a stop word.
struct ChatWatch {
  std::function<bool()> stopped = {};
  std::function<void(std::string_view piece)> show = {};
  std::function<void(int64_t tokens)> written = {};
};

// One conversation: its turns so far, and how the next answer is made. Use it within a ChatScope.
class Conversation {
 public:
  // `images`: those of chat_images(), which the first question is about. The image tower runs for the first question
  // that fits into the context.
  Conversation(const ChatOptions& options, const train::OpenedLanguage& opened, const torch::Tensor& images);

  // Takes over earlier turns: question, answer, question, …. For a model that reads images, answers lose the word
  // "<image>", which would be read as one.
  void replay(const std::vector<Turn>& turns);
  // A question that cannot be answered leaves the conversation unchanged. An encoder-decoder has no earlier
  // questions.
  WrittenText answer(const std::string& question, const ChatWatch& watch);

 private:
  struct Growing;

  std::string with_image_words(const std::string& question) const;
  std::vector<int64_t> source_ids(const std::string& text) const;
  bool cut_at_stop(WrittenText& out) const;
  size_t certain(const std::string& text) const;
  std::vector<int64_t> end_tokens() const;
  models::GenerationOptions search_options(int64_t room) const;
  models::NextTokenModel model_of(const torch::Tensor& read) const;
  void check_length(int64_t tokens) const;
  std::vector<int64_t> tokens_to_read(std::vector<int64_t> ids);
  WrittenText generate(const std::vector<int64_t>& given, const ChatWatch& watch);

  const ChatOptions options_;
  const train::OpenedLanguage& opened_;
  const Tokeniser& tokeniser_;
  torch::Tensor images_, features_;  // undefined without images; features until they are needed
  const ChatTemplate* template_ = nullptr;
  std::vector<Turn> turns_;
};

// Returns images [images, 3, side, side] of `count` samples, preprocessed for the model. Throws a usage error for a
// model that reads none. Undefined for no sample.
torch::Tensor chat_images(const train::OpenedLanguage& opened, const std::string& precision, int64_t count,
                          const std::function<data::RawSample(int64_t index)>& sample);

// The answer of a language model's weights; null for others.
std::shared_ptr<Answerer> open_chat(const OpenRequest& request, std::vector<std::string>& notes);

}  // namespace tessera::answer
