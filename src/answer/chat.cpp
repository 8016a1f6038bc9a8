#include "answer/chat.h"

#include <atomic>
#include <cmath>

#include "answer/image_rows.h"
#include "core/text.h"
#include "io/files/json.h"
#include "open/device.h"
#include "text/unicode.h"

namespace tessera::answer {
namespace {

constexpr size_t kMostText = size_t{1} << 20;              // bytes of a request's texts
constexpr int64_t kMostTokens = 16384, kMostTurns = 4096;  // of a request
constexpr const char* kMessages = "messages";

struct PreparedChat : Prepared {
  ChatOptions options;
  std::vector<Turn> earlier;
  std::string question;
  torch::Tensor images;
};

struct RequestOptions : ChatOptions {
  std::string prompt;
  template <class V>
  void visit(V& v) {
    v("prompt", prompt, "the question, or the text to continue");
    ChatOptions::visit(v);
  }
};

std::string text_member(const Value& message, const char* key, size_t place) {
  const Value* found = message.is_table() ? message.find(key) : nullptr;
  if (!found || !found->is_string())
    fail_usage("messages: message ", place, " has no text '", key,
               R"(', must be as {"role": "user", "content": "…"})");
  return found->as_string();
}

// Reads [{"role": "user" or "assistant", "content": …}, …], or this list as a text, since parameters of V2 are no
// lists. Throws a usage error unless turns alternate and begin and end with the user's.
std::vector<Turn> read_messages(const Value& given) {
  const Value list = given.is_string()
                         ? parse_json_value(R"({"messages":)" + given.as_string() + "}", "messages")
                         : Value(Value::Table{{kMessages, given}});
  const Value* messages = list.find(kMessages);
  if (!messages || !messages->is_array()) fail_usage("option 'messages' must be a list of messages");
  if (std::ssize(messages->as_array()) > kMostTurns)
    throw TooLarge(text("messages: there are more than ", kMostTurns));
  std::vector<Turn> turns;
  for (const Value& message : messages->as_array()) {
    const size_t place = turns.size();
    const std::string role = text_member(message, "role", place);
    if (role != (place % 2 == 0 ? "user" : "assistant"))
      fail_usage("messages: message ", place, " is of '", printable(role), "', must be of '",
                 place % 2 == 0 ? "user" : "assistant", "': turns alternate, the user's first");
    turns.push_back({place % 2 == 0, text_member(message, "content", place)});
  }
  if (turns.size() % 2 == 0) fail_usage("messages: the last message must be of 'user'");
  return turns;
}

Array number_of(const char* name, int64_t value) {
  return {.name = name,
          .type = Datatype::int64,
          .shape = {1},
          .data = std::string(reinterpret_cast<const char*>(&value), sizeof value)};
}

class Chat final : public Answerer {
 public:
  Chat(train::OpenedLanguage opened, const OpenRequest& request)
      : opened_(std::move(opened)), precision_(request.precision), max_pixels_(request.max_pixels) {
    description_.kind = "chat";
    description_.summary = opened_.images ? "answers to questions about images and texts"
                                          : "answers to questions, and texts that go on";
    if (opened_.images) description_.inputs = picture_inputs();
    description_.options = describe_options<RequestOptions>();
    description_.options.insert(
        description_.options.begin() + 1,
        OptionDescription{.key = kMessages,
                          .meaning =
                              "a conversation instead of 'prompt': objects with role (user or assistant) "
                              "and content; the images are those of its first message",
                          .values = {},
                          .type = "array",
                          .items = "object"});
    description_.outputs = {{"answer", Datatype::bytes, {1}, "the text"},
                            {"end", Datatype::bytes, {1}, "stop, or length"},
                            {"prompt_tokens", Datatype::int64, {1}, "tokens that were read"},
                            {"tokens", Datatype::int64, {1}, "tokens that were written"}};
    description_.slow = true;
    description_.details = {{"context", opened_.context}, {"template", opened_.chat_template}};
    if (opened_.images) description_.details["preprocessing"] = preprocess_json(opened_.preprocess);
  }
  const Description& description() const override { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const override {
    const torch::InferenceMode inference;
    check_inputs(request, description_);
    if (request.inputs.size() > 1) fail_usage("inputs image and pixels are alternatives: give one of them");
    auto prepared = std::make_unique<PreparedChat>();
    read_options(request, *prepared);
    const std::vector<data::RawSample> samples = read_samples(request, max_pixels_);
    check_prepared(std::ssize(samples), 3 * opened_.preprocess.size * opened_.preprocess.size);
    prepared->images = chat_images(opened_, precision_, std::ssize(samples),
                                   [&](int64_t index) { return samples[static_cast<size_t>(index)]; });
    prepared->bytes =
        prepared->question.size() + (prepared->images.defined() ? prepared->images.nbytes() : 0);
    for (const Turn& turn : prepared->earlier) prepared->bytes += turn.text.size();
    static std::atomic<uint64_t> numbers = 0;
    prepared->key = std::to_string(++numbers);  // answered alone
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) override {
    const torch::InferenceMode inference;
    const ChatScope scope(precision_);
    std::vector<Reply> replies;
    for (const Prepared* one : requests)
      replies.push_back(answer_one(static_cast<const PreparedChat&>(*one), control));
    return replies;
  }

 private:
  static void read_options(const Request& request, PreparedChat& prepared) {
    Value options = request.options;
    std::vector<Turn> turns;
    bool has_messages = false;
    std::erase_if(options.as_table(), [&](const auto& entry) {
      if (entry.first != kMessages) return false;
      turns = read_messages(entry.second), has_messages = true;
      return true;
    });
    auto read = answer::read_options<RequestOptions>(options);
    read.check();
    if (has_messages && !read.prompt.empty()) fail_usage("options 'prompt' and 'messages': give one of them");
    if (!has_messages) turns = {{true, read.prompt}};
    if (trim(turns.back().text).empty())
      fail_usage("option 'prompt' is missing or empty: give a question, or 'messages'");
    if (read.max_tokens > kMostTokens)
      throw TooLarge(text("option 'max_tokens' is ", read.max_tokens, ", must be at most ", kMostTokens));
    size_t bytes = 0;
    for (const Turn& turn : turns) {
      tokens::to_code_points(turn.text, "the text");  // throws unless it is UTF-8
      bytes += turn.text.size();
    }
    if (bytes > kMostText)
      throw TooLarge(text("the texts have ", bytes, " bytes, must be at most ", kMostText));
    if (!read.chat.empty()) find_template(read.chat);
    prepared.question = std::move(turns.back().text);
    turns.pop_back();
    prepared.earlier = std::move(turns);
    prepared.options = std::move(read);
  }

  Reply answer_one(const PreparedChat& asked, const Control& control) const {
    if (opened_.encoder_decoder && !(asked.earlier.empty() && asked.options.chat.empty()))
      fail_usage("an encoder-decoder has no template and no earlier messages: give option 'prompt'");
    Conversation conversation(asked.options, opened_, asked.images);
    conversation.replay(asked.earlier);
    const WrittenText written =
        conversation.answer(asked.question, {.stopped = [&] { return control.stopped(); },
                                             .show = control.text,
                                             .written =
                                                 [&](int64_t tokens) {
                                                   if (control.progress)
                                                     control.progress(tokens, asked.options.max_tokens, {});
                                                   let_others(control);
                                                 }});
    if (std::string_view(written.end) == "interrupted")
      throw Error(ErrorKind::interrupted, "the request was cancelled");
    Reply reply;
    reply.results.push_back(json_of(written));
    reply.outputs = {texts_of("answer", {1}, {written.text}), texts_of("end", {1}, {written.end}),
                     number_of("prompt_tokens", written.prompt_tokens), number_of("tokens", written.tokens)};
    return reply;
  }

  train::OpenedLanguage opened_;
  std::string precision_;
  int64_t max_pixels_;
  Description description_;
};

}  // namespace

std::shared_ptr<Answerer> open_chat(const OpenRequest& request, std::vector<std::string>& notes) {
  if (!train::is_language_model(request.weights)) return nullptr;
  if (!train::choose_device(request.device).is_cpu() && request.device != "auto")
    fail_usage("'", request.weights,
               "' is a language model, which computes on the CPU: --device must be cpu");
  train::OpenedLanguage opened = open_chat_model(
      {.source = {.weights = request.weights, .raw = request.raw}, .precision = request.precision}, "");
  for (const std::string& note : opened.notes) notes.push_back(note);
  return std::make_shared<Chat>(std::move(opened), request);
}

}  // namespace tessera::answer
