// `tessera chat --weights FOLDER`: a conversation with a language model, which may be about images.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "io/files/file.h"
#include "models/language/language_model.h"
#include "models/language/llava.h"
#include "open/device.h"
#include "open/open_language.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "text/conversation.h"
#include "text/unicode.h"
#include "weights/adapter_config.h"

namespace tessera::cli {
namespace {

constexpr uint64_t kLongestQuestion = uint64_t{4} << 20;  // bytes

struct ChatOptions {
  train::LanguageSource source;
  std::string adapter, chat, precision = "fp32";
  std::optional<std::string> prompt;
  std::vector<std::string> images, stops;
  int64_t max_tokens = 256, threads = 0, top_k = 0, beams = 1, no_repeat = 0;
  int64_t seed = 0;
  double temperature = 0, top_p = 1, min_p = 0, repetition = 1;
  bool json = false, raw = false, merge = false;

  template <class V>
  void visit(V& v) {
    v("weights", source.weights, {.names = "-w", .required = true},
      "run of task language, instruct, frozen or flamingo; folder with config.json, weights and tokeniser of "
      "a published language model; or OpenFlamingo's checkpoint.pt");
    v("language", source.language, "OpenFlamingo: folder of its language model");
    v("tower", source.tower, "OpenFlamingo: weights of its image tower, CLIP's");
    v("adapter", adapter, "folder with an adapter of the library PEFT (LoRA)");
    v("merge", merge, "merge the adapter into the weights instead of adding it at each token");
    v("image", images, "images of the conversation");
    v("prompt", prompt, "one question (default: a conversation, line by line)");
    v("tokenizer", source.tokenizer, "tokeniser (default: the folder's)");
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
    v("precision", precision, "fp32, bf16 or int8");
    v("threads", threads, between(0, 1024), "compute threads, 0 = all cores");
    v("json", json, "one JSON object for each answer");
  }
};

torch::ScalarType dtype_of(const std::string& precision) {
  if (precision == "fp32") return torch::kFloat32;
  if (precision == "bf16" || precision == "int8") return torch::kBFloat16;
  fail_usage("--precision is '", printable(precision), "', must be fp32, bf16 or int8");
}

// Makes an answer safe for a terminal: control characters except line ends and tabs are printed as numbers.
std::string harmless(std::string_view said) {
  std::string out;
  size_t begin = 0;
  for (size_t i = 0; i <= said.size(); ++i) {
    if (i < said.size() && said[i] != '\n' && said[i] != '\t') continue;
    out += printable(said.substr(begin, i - begin), said.size());
    if (i < said.size()) out += said[i];
    begin = i + 1;
  }
  return out;
}

// Returns the encoded images in the form of models::ImageReading; undefined without images.
torch::Tensor read_images(const ChatOptions& options, const train::OpenedLanguage& opened) {
  if (options.images.empty()) return {};
  if (!opened.images) fail_usage(opened.file, " reads no images: --image is for a model with an image tower");
  const auto transform = data::make_eval_transform(opened.preprocess);
  const data::ImageFiles files(options.images);
  std::vector<torch::Tensor> pixels;
  for (int64_t i = 0; i < files.size(); ++i) {
    const int64_t side = opened.preprocess.size;
    torch::Tensor image = torch::empty({3, side, side}, torch::kFloat32);
    RandomStream none(0, "chat");
    const data::Slot slot{.data = static_cast<std::byte*>(image.data_ptr())};
    transform->apply(files.read(i), none, std::span(&slot, 1));
    pixels.push_back(image);
  }
  return opened.images->features(torch::stack(pixels).to(dtype_of(options.precision)));
}

// One conversation: its turns so far, and the settings of answers.
class Chat {
 public:
  Chat(const ChatOptions& options, const train::OpenedLanguage& opened)
      : options_(options),
        opened_(opened),
        tokeniser_(*opened.tokeniser),
        features_(read_images(options, opened)) {
    const std::string name = !options.chat.empty() ? options.chat : options.raw ? "" : opened.chat_template;
    if (!name.empty()) template_ = &find_template(name);
  }

  struct Answer {
    std::string text;
    int64_t prompt_tokens = 0, tokens = 0;
    double seconds = 0;
    const char* end = "length";  // or "stop", "interrupted"
  };

  // If a question cannot be answered, the conversation is unchanged. An encoder-decoder sees no earlier
  // questions.
  Answer answer(const std::string& question, bool shows) {
    tokens::to_code_points(question, "the question");  // throws unless it is UTF-8
    if (opened_.encoder_decoder) return generate(source_ids(question), shows);
    std::vector<Turn> turns = turns_;
    const bool images = opened_.images.has_value();  // without images, "<image>" is plain text
    turns.push_back({true, images ? with_image_words(question) : question});
    const std::string text = template_
                                 ? conversation_text(*template_, images ? with_images_first(turns) : turns)
                                 : words_of(turns);
    Answer out = generate(encode_with_images(tokeniser_, text, images), shows);
    turns.push_back({false, out.text});
    turns_ = std::move(turns);
    return out;
  }

 private:
  // The first question gets all images that have no placeholder; later ones get none.
  std::string with_image_words(const std::string& question) const {
    int64_t named = 0;
    for (size_t at = 0; (at = question.find(kImageWord, at)) != std::string::npos; at += kImageWord.size())
      ++named;
    const int64_t images = features_.defined() && turns_.empty() ? features_.size(0) : 0;
    if (named != 0 && named != images)
      fail_usage("the question holds '<image>' ", counted(named, "time"),
                 images == 1 ? ", there is " : ", there are ", counted(images, "image"),
                 features_.defined() && !turns_.empty() ? " more: the first question had them" : "");
    std::string out = question;
    for (int64_t i = named; i < images; ++i) out = std::string(kImageWord) + "\n" + out;
    return out;
  }

  // The text that the encoder reads; it ends with an end token.
  std::vector<int64_t> source_ids(const std::string& text) const {
    const std::vector<int32_t> ids = tokeniser_.encode(text);
    std::vector<int64_t> read(ids.begin(), ids.end());
    const std::vector<int64_t> ends = end_tokens();
    if (!ends.empty() && (read.empty() || std::ranges::find(ends, read.back()) == ends.end()))
      read.push_back(ends.front());
    return read;
  }

  static std::string words_of(const std::vector<Turn>& turns) {
    std::string out;
    for (const Turn& turn : turns) out += turn.text;
    return out;
  }

  // Ends the answer before the first stop word. True if it has one.
  bool cut_at_stop(Answer& out) const {
    size_t first = std::string::npos;
    for (const std::string& stop : options_.stops) first = std::min(first, out.text.find(stop));
    if (first == std::string::npos) return false;
    out.text.resize(first);
    out.end = "stop";
    return true;
  }

  // The length of the text that can be shown already: its end may be the beginning of a stop word.
  size_t certain(const std::string& text) const {
    size_t held = 0;
    for (const std::string& stop : options_.stops)
      for (size_t part = std::min(stop.size() - 1, text.size()); part > held; --part)
        if (text.ends_with(std::string_view(stop).substr(0, part))) held = part;
    return text.size() - held;
  }

  std::vector<int64_t> end_tokens() const {
    std::vector<int64_t> ends = opened_.end_tokens;
    for (const char* name : {"</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<eos>"})
      if (const auto id = tokeniser_.find(name); id && std::ranges::find(ends, *id) == ends.end())
        ends.push_back(*id);
    return ends;
  }

  // The search settings of an answer of at most `room` tokens.
  models::GenerationOptions search_options(int64_t room) const {
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
    // Published embeddings often have rows beyond the last token.
    for (int64_t id = tokeniser_.size(); id < opened_.vocabulary; ++id)
      search.rules.bad_words.push_back({id});
    return search;
  }

  models::NextTokenModel model_of(const torch::Tensor& read) const {
    if (opened_.encoder_decoder)
      return models::next_token_model(*opened_.encoder_decoder, read, {}, options_.beams);
    if (opened_.images) return opened_.images->begin(read, features_, options_.beams);
    return models::next_token_model(*opened_.language, {}, options_.beams);
  }

  // Returns the tokens that the model reads, with the images' tokens in their places.
  std::vector<int64_t> tokens_to_read(std::vector<int64_t> ids) const {
    if (opened_.images) std::replace(ids.begin(), ids.end(), kImageId, opened_.images->image_token);
    if (features_.defined())
      ids =
          models::expand_image_tokens(ids, opened_.images->image_token, opened_.images->places_of(features_));
    if (ids.empty()) fail_usage("the prompt is empty");
    if (opened_.context > 0 && std::ssize(ids) >= opened_.context)
      fail_usage("the conversation has ", ids.size(), " tokens, the model reads ", opened_.context);
    return ids;
  }

  // An answer that grows token by token until a word of --stop.
  struct Growing {
    const Chat& chat;
    bool shows;
    Answer out = {};
    StreamDecoder stream{chat.tokeniser_};
    size_t printed = 0;  // bytes of the answer
    bool cut = false;    // a word of --stop came

    // The space between template and answer is dropped; otherwise the next turn would have two.
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
      if (!shows || end <= printed) return;
      std::cout << harmless(std::string_view(out.text).substr(printed, end - printed)) << std::flush;
      printed = end;
    }
  };

  Answer generate(const std::vector<int64_t>& given, bool shows) {
    const double began = steady_seconds();
    const std::vector<int64_t> ids = tokens_to_read(given);
    const torch::Tensor read = torch::tensor(ids, torch::kInt64).unsqueeze(0);
    // The answer is appended to this.
    const torch::Tensor prompt =
        opened_.encoder_decoder ? torch::full({1, 1}, opened_.start_token, torch::kInt64) : read;

    Growing growing{*this, shows};
    Answer& out = growing.out;
    out.prompt_tokens = std::ssize(ids);
    models::GenerationOptions search =
        search_options(opened_.context > 0 ? opened_.context - std::ssize(ids) : options_.max_tokens);
    search.stopped = [&] {
      if (interrupted()) out.end = "interrupted";
      return interrupted();
    };
    const auto is_end = [&](int64_t id) {
      return std::find(search.ends.begin(), search.ends.end(), id) != search.ends.end();
    };
    search.progress = [&](const std::vector<int64_t>& tokens) {
      if (interrupted()) return out.end = "interrupted", false;
      if (is_end(tokens[0])) return out.end = "stop", true;
      growing.add_token(tokens[0]);
      growing.show(certain(out.text));
      return std::string_view(out.end) != "stop";
    };
    const models::NextTokenModel next = model_of(read);
    const models::Generated generated = models::generate(next, prompt, search);
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

  const ChatOptions& options_;
  const train::OpenedLanguage& opened_;
  const Tokeniser& tokeniser_;
  torch::Tensor features_;
  const ChatTemplate* template_ = nullptr;
  std::vector<Turn> turns_;
};

void print_json(const std::string& question, const Chat::Answer& answer) {
  const nlohmann::ordered_json line = {{"prompt", question},      {"answer", answer.text},
                                       {"end", answer.end},       {"prompt_tokens", answer.prompt_tokens},
                                       {"tokens", answer.tokens}, {"seconds", answer.seconds}};
  std::cout << json_text(line) << std::endl;
}

void check_options(const ChatOptions& options) {
  if (options.beams > 1 && options.temperature > 0) fail_usage("--beams and --temperature: choose one");
  const bool draws = options.temperature > 0;
  for (const auto& [given, name] : {std::pair(options.top_k > 0, "--top-k"),
                                    {options.top_p != 1, "--top-p"},
                                    {options.min_p > 0, "--min-p"}})
    if (given && options.beams > 1)
      fail_usage("--beams and ", name, ": beams search, ", name, " sets how tokens are drawn: choose one");
    else if (given && !draws)
      fail_usage(name, " sets how tokens are drawn: it goes with --temperature");
  if (std::ranges::find(options.stops, "") != options.stops.end())
    fail_usage("--stop is empty, must be words that end an answer");
  if (options.prompt && trim(*options.prompt).empty()) fail_usage("--prompt is empty, must be a question");
}

void chat(const ChatOptions& options) {
  check_options(options);
  train::use_threads(options.threads);
  const torch::NoGradGuard no_grad;
  const ops::InferenceScope arithmetic({.int8 = options.precision == "int8"});
  return_freed_memory(256 << 10);  // returns a weight's memory to the system once it is packed
  const train::OpenedLanguage opened = train::open_language(options.source, dtype_of(options.precision));
  if (options.merge && options.adapter.empty()) fail_usage("--merge goes with --adapter");
  if (opened.encoder_decoder && !(options.chat.empty() && options.adapter.empty()))
    fail_usage(options.chat.empty() ? "--adapter" : "--template", " is for decoders: ", opened.file,
               " is an encoder-decoder");
  if (!options.adapter.empty()) train::read_adapter(*opened.language, options.adapter, options.merge);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  keep_freed_memory();
  const ops::PackedOnly memory;
  Chat conversation(options, opened);
  struct ForgetsInterrupts {  // a signal ends the answer, not the conversation
    ~ForgetsInterrupts() { forget_interrupts(); }
  };
  const auto ask = [&](const std::string& question) {
    const ForgetsInterrupts afterwards;
    const Interruptible until_a_signal;
    const Chat::Answer answer = conversation.answer(question, !options.json);
    if (options.json)
      print_json(question, answer);
    else
      std::cout << std::endl;
    return std::string_view(answer.end) != "interrupted";
  };
  if (options.prompt) {
    if (!ask(*options.prompt)) throw Error(ErrorKind::interrupted, "interrupted");
    return;
  }
  std::string line;
  int64_t failed = 0;
  while (true) {
    if (!options.json) std::cout << "> " << std::flush;
    try {
      if (!read_line(std::cin, line, "the question", kLongestQuestion)) break;
      if (!trim(line).empty()) ask(line);
    } catch (const Error& error) {  // the next question may be valid
      std::cerr << "tessera: " << one_line(error.what()) << "\n";
      ++failed;
    }
  }
  if (!options.json) std::cout << "\n";
  if (failed > 0 && !isatty(STDIN_FILENO)) fail(counted(failed, "question"), " had no answer");
}

}  // namespace

void add_chat(Arguments& command, Action& action) { action = with_options<ChatOptions>(command, chat); }

}  // namespace tessera::cli
