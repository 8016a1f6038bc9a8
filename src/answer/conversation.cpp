#include <algorithm>

#include "answer/chat.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/language/language_model.h"
#include "models/language/llava.h"
#include "open/image_walk.h"
#include "text/unicode.h"
#include "weights/adapter_config.h"

namespace tessera::answer {
namespace {

torch::ScalarType dtype_of(const std::string& precision) {
  if (precision == "fp32") return torch::kFloat32;
  if (precision == "bf16" || precision == "int8") return torch::kBFloat16;
  fail_usage("--precision is '", printable(precision), "', must be fp32, bf16 or int8");
}

std::string words_of(const std::vector<Turn>& turns) {
  std::string out;
  for (const Turn& turn : turns) out += turn.text;
  return out;
}

// Returns an answer without the word of an image, also where others are cut out of it.
std::string without_image_words(const std::string& answer) {
  std::string out;
  for (const char c : answer) {
    out += c;
    if (out.ends_with(kImageWord)) out.resize(out.size() - kImageWord.size());
  }
  return out;
}

}  // namespace

void ChatOptions::check() const {
  if (beams > 1 && temperature > 0) fail_usage("--beams and --temperature: choose one");
  for (const auto& [given, name] :
       {std::pair(top_k > 0, "--top-k"), {top_p != 1, "--top-p"}, {min_p > 0, "--min-p"}})
    if (given && beams > 1)
      fail_usage("--beams and ", name, ": beams search, ", name, " sets how tokens are drawn: choose one");
    else if (given && temperature == 0)
      fail_usage(name, " sets how tokens are drawn: it goes with --temperature");
  if (std::ranges::find(stops, "") != stops.end())
    fail_usage("--stop is empty, must be words that end an answer");
}

train::OpenedLanguage open_chat_model(const ChatSource& source, const std::string& chat) {
  const torch::NoGradGuard no_grad;
  const ops::InferenceScope arithmetic({.int8 = source.precision == "int8"});
  train::OpenedLanguage opened = train::open_language(source.source, dtype_of(source.precision));
  if (source.merge && source.adapter.empty()) fail_usage("--merge goes with --adapter");
  if (opened.encoder_decoder && !(chat.empty() && source.adapter.empty()))
    fail_usage(chat.empty() ? "--adapter" : "--template", " is for decoders: ", opened.file,
               " is an encoder-decoder");
  if (!source.adapter.empty()) train::read_adapter(*opened.language, source.adapter, source.merge);
  return opened;
}

nlohmann::ordered_json json_of(const WrittenText& answer) {
  return {{"answer", answer.text},
          {"end", answer.end},
          {"prompt_tokens", answer.prompt_tokens},
          {"tokens", answer.tokens},
          {"seconds", answer.seconds}};
}

torch::Tensor chat_images(const train::OpenedLanguage& opened, const std::string& precision, int64_t count,
                          const std::function<data::RawSample(int64_t index)>& sample) {
  if (count == 0) return {};
  if (!opened.images) fail_usage(opened.file, " reads no images: --image is for a model with an image tower");
  return train::prepared_images(*data::make_eval_transform(opened.preprocess), count, sample)
      .to(dtype_of(precision));
}

Conversation::Conversation(const ChatOptions& options, const train::OpenedLanguage& opened,
                           const torch::Tensor& images)
    : options_(options), opened_(opened), tokeniser_(*opened.tokeniser), images_(images) {
  const std::string name = !options.chat.empty() ? options.chat : options.raw ? "" : opened.chat_template;
  if (!name.empty()) template_ = &find_template(name);
}

void Conversation::replay(const std::vector<Turn>& turns) {
  for (const Turn& turn : turns) {
    const std::string text = !opened_.images ? turn.text
                             : turn.user     ? with_image_words(turn.text)
                                             : without_image_words(turn.text);
    turns_.push_back({turn.user, text});
  }
}

WrittenText Conversation::answer(const std::string& question, const ChatWatch& watch) {
  tokens::to_code_points(question, "the question");  // throws unless it is UTF-8
  if (opened_.encoder_decoder) return generate(source_ids(question), watch);
  std::vector<Turn> turns = turns_;
  const bool images = opened_.images.has_value();  // without any, "<image>" is a word like others
  turns.push_back({true, images ? with_image_words(question) : question});
  const std::string text =
      template_ ? conversation_text(*template_, images ? with_images_first(turns) : turns) : words_of(turns);
  WrittenText out = generate(encode_with_images(tokeniser_, text, images), watch);
  turns.push_back({false, images ? without_image_words(out.text) : out.text});
  turns_ = std::move(turns);
  return out;
}

// The first question is about all images that it does not name, later ones name none.
std::string Conversation::with_image_words(const std::string& question) const {
  int64_t named = 0;
  for (size_t at = 0; (at = question.find(kImageWord, at)) != std::string::npos; at += kImageWord.size())
    ++named;
  const int64_t images = images_.defined() && turns_.empty() ? images_.size(0) : 0;
  if (named != 0 && named != images)
    fail_usage("the question holds '<image>' ", counted(named, "time"),
               images == 1 ? ", there is " : ", there are ", counted(images, "image"),
               images_.defined() && !turns_.empty() ? " more: the first question had them" : "");
  std::string out = question;
  for (int64_t i = named; i < images; ++i) out = std::string(kImageWord) + "\n" + out;
  return out;
}

// The text that an encoder reads, which an end token ends.
std::vector<int64_t> Conversation::source_ids(const std::string& text) const {
  const std::vector<int32_t> ids = tokeniser_.encode(text);
  std::vector<int64_t> read(ids.begin(), ids.end());
  const std::vector<int64_t> ends = end_tokens();
  if (!ends.empty() && (read.empty() || std::ranges::find(ends, read.back()) == ends.end()))
    read.push_back(ends.front());
  return read;
}

// Ends the answer before the first stop word. True if it has one.
bool Conversation::cut_at_stop(WrittenText& out) const {
  size_t first = std::string::npos;
  for (const std::string& stop : options_.stops) first = std::min(first, out.text.find(stop));
  if (first == std::string::npos) return false;
  out.text.resize(first);
  out.end = "stop";
  return true;
}

// How much of the text can be shown while it grows: its end may be the beginning of a word that ends the answer.
size_t Conversation::certain(const std::string& text) const {
  size_t held = 0;
  for (const std::string& stop : options_.stops)
    for (size_t part = std::min(stop.size() - 1, text.size()); part > held; --part)
      if (text.ends_with(std::string_view(stop).substr(0, part))) held = part;
  return text.size() - held;
}

std::vector<int64_t> Conversation::end_tokens() const {
  std::vector<int64_t> ends = opened_.end_tokens;
  for (const char* name : {"</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<eos>"})
    if (const auto id = tokeniser_.find(name); id && std::ranges::find(ends, *id) == ends.end())
      ends.push_back(*id);
  return ends;
}

// How an answer of at most `room` tokens is searched for.
models::GenerationOptions Conversation::search_options(int64_t room) const {
  models::GenerationOptions search;
  search.max_new_tokens = std::min(options_.max_tokens, room);
  search.ends = end_tokens();
  search.seed = static_cast<uint64_t>(options_.seed);
  search.sample = options_.temperature > 0;
  search.beams = options_.beams;
  search.rules = {.repetition_penalty = options_.repetition,
                  .no_repeat_ngram = options_.no_repeat,
                  .temperature = search.sample ? options_.temperature : 1,
                  .top_k = options_.top_k,
                  .top_p = options_.top_p,
                  .min_p = options_.min_p};
  if (opened_.images) search.rules.bad_words = {{opened_.images->image_token}};
  // Published embeddings often have rows after the last token.
  for (int64_t id = tokeniser_.size(); id < opened_.vocabulary; ++id) search.rules.bad_words.push_back({id});
  return search;
}

models::NextTokenModel Conversation::model_of(const torch::Tensor& read) const {
  if (opened_.encoder_decoder)
    return models::next_token_model(*opened_.encoder_decoder, read, {}, options_.beams);
  if (opened_.images) return opened_.images->begin(read, features_, options_.beams);
  return models::next_token_model(*opened_.language, {}, options_.beams);
}

void Conversation::check_length(int64_t tokens) const {
  if (opened_.context > 0 && tokens >= opened_.context)
    fail_usage("the conversation has ", tokens, " tokens, the model reads ", opened_.context);
}

// Returns the tokens that the model reads, with those of the images in their places. The first image gives the number
// of its tokens.
std::vector<int64_t> Conversation::tokens_to_read(std::vector<int64_t> ids) {
  if (ids.empty()) fail_usage("the prompt is empty");
  check_length(std::ssize(ids));
  if (opened_.images) std::replace(ids.begin(), ids.end(), kImageId, opened_.images->image_token);
  if (!images_.defined()) return ids;
  const models::ImageReading& reading = *opened_.images;
  const auto longer = [&](const torch::Tensor& features) {
    return std::ssize(ids) + images_.size(0) * (reading.places_of(features) - 1);
  };
  if (!features_.defined()) {
    const torch::Tensor first = reading.features(images_.slice(0, 0, 1));
    check_length(longer(first));
    features_ = images_.size(0) == 1 ? first : torch::cat({first, reading.features(images_.slice(0, 1))});
  }
  check_length(longer(features_));
  return models::expand_image_tokens(ids, reading.image_token, reading.places_of(features_));
}

// An answer that grows token by token, up to a stop word.
struct Conversation::Growing {
  const Conversation& chat;
  const ChatWatch& watch;
  WrittenText out = {};
  StreamDecoder stream{chat.tokeniser_};
  size_t shown = 0;  // bytes of the answer
  bool cut = false;  // a stop word came

  // The space between the template and an answer belongs to neither: the next turn would have two.
  void add(std::string piece) {
    if (chat.template_ && out.text.empty()) piece.erase(0, piece.find_first_not_of(" \n"));
    out.text += piece;
    cut = chat.cut_at_stop(out);
  }
  void add_token(int64_t id) {
    ++out.tokens;
    add(stream.push(static_cast<int32_t>(id)));
  }
  void show(size_t end) {
    if (!watch.show || end <= shown) return;
    watch.show(std::string_view(out.text).substr(shown, end - shown));
    shown = end;
  }
};

WrittenText Conversation::generate(const std::vector<int64_t>& given, const ChatWatch& watch) {
  const double began = steady_seconds();
  const std::vector<int64_t> ids = tokens_to_read(given);
  const torch::Tensor read = torch::tensor(ids, torch::kInt64).unsqueeze(0);
  // The answer is appended to this.
  const torch::Tensor prompt =
      opened_.encoder_decoder ? torch::full({1, 1}, opened_.start_token, torch::kInt64) : read;

  Growing growing{*this, watch};
  WrittenText& out = growing.out;
  out.prompt_tokens = std::ssize(ids);
  models::GenerationOptions search =
      search_options(opened_.context > 0 ? opened_.context - std::ssize(ids) : options_.max_tokens);
  search.stopped = [&] {
    if (watch.stopped && watch.stopped()) out.end = "interrupted";
    return std::string_view(out.end) == "interrupted";
  };
  const auto is_end = [&](int64_t id) { return std::ranges::find(search.ends, id) != search.ends.end(); };
  search.progress = [&](const std::vector<int64_t>& tokens) {
    if (search.stopped()) return false;
    if (is_end(tokens[0])) return out.end = "stop", true;
    growing.add_token(tokens[0]);
    growing.show(certain(out.text));
    if (watch.written) watch.written(out.tokens);
    return std::string_view(out.end) != "stop";
  };
  const models::Generated generated = models::generate(model_of(read), prompt, search);
  if (options_.beams > 1) {
    const torch::Tensor row = generated.ids[0].slice(0, prompt.size(1)).contiguous();
    for (int64_t i = 0; i < row.numel() && !growing.cut; ++i) {
      const auto id = row[i].item<int64_t>();
      if (is_end(id)) {
        out.end = "stop";
        break;
      }
      growing.add_token(id);
    }
  }
  if (!growing.cut) growing.add(growing.stream.finish());
  growing.show(out.text.size());
  out.seconds = steady_seconds() - began;
  return std::move(out);
}

}  // namespace tessera::answer
