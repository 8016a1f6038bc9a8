#include "text/conversation.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

const std::vector<ChatTemplate>& templates() {
  static const std::string vicuna =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
      "detailed, and polite answers to the user's questions.";
  static const std::string llava_0 =
      "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, "
      "detailed, and polite answers to the human's questions.";
  static const std::string llava_2 =
      "You are a helpful language and vision assistant. You are able to understand the visual content that "
      "the user "
      "provides, and assist the user with a variety of tasks using natural language.";
  static const std::string mpt =
      "<|im_start|>system\nA conversation between a user and an LLM-based AI assistant. The assistant gives "
      "helpful "
      "and honest answers.";
  static const std::string user = "<|im_start|>user\n", assistant = "<|im_start|>assistant\n";
  static const std::vector<ChatTemplate> all = {
      {"v1", vicuna, "USER", "ASSISTANT", TurnStyle::two, " ", "</s>"},
      {"vicuna_v1", vicuna, "USER", "ASSISTANT", TurnStyle::two, " ", "</s>"},
      {"llava_v1", llava_0, "USER", "ASSISTANT", TurnStyle::two, " ", "</s>"},
      {"plain", "", "", "", TurnStyle::plain, "\n", ""},
      {"v0_plain", "", "", "", TurnStyle::plain, "\n", ""},
      {"llava_llama_2", llava_2, "USER", "ASSISTANT", TurnStyle::llama_2, "<s>", "</s>"},
      {"mistral_instruct", "", "USER", "ASSISTANT", TurnStyle::llama_2, "", "</s>"},
      {"mpt", mpt, user, assistant, TurnStyle::mpt, "<|im_end|>", ""},
      {"llava_v0", llava_0, "Human", "Assistant", TurnStyle::single, "###", ""},
      {"chatml_direct", "<|im_start|>system\nAnswer the questions.", user, assistant, TurnStyle::mpt,
       "<|im_end|>", ""},
      {"llama_3", "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant.",
       "<|start_header_id|>user<|end_header_id|>\n\n", "<|start_header_id|>assistant<|end_header_id|>\n\n",
       TurnStyle::mpt, "<|eot_id|>", ""},
      {"short", "", "USER", "ASSISTANT", TurnStyle::two, " ", "<|endoftext|>"},
  };
  return all;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::vector<std::string> split_by(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::string llama_2_text(const ChatTemplate& chat, const std::vector<Turn>& turns) {
  std::string out;
  for (size_t i = 0; i < turns.size(); ++i) {
    std::string message = turns[i].text;
    if (i == 0 && !chat.system.empty()) message = "<<SYS>>\n" + chat.system + "\n<</SYS>>\n\n" + message;
    out += turns[i].user ? chat.sep + "[INST] " + message + " [/INST]" : " " + message + " " + chat.sep2;
  }
  // As published: removes leading characters that occur in `sep`, not the string `sep`.
  out.erase(0, std::min(out.find_first_not_of(chat.sep), out.size()));
  return out;
}

// A round of a conversation: its number of tokens, and the number in its question.
struct Round {
  int64_t length, question;
};

class Labeller {
 public:
  Labeller(const Tokeniser& tokeniser, TrainingText& out) : tokeniser_(tokeniser), out_(out) {}

  int64_t length(const std::string& text) const { return std::ssize(encode_with_images(tokeniser_, text)); }

  // Masks the questions of rounds, which were split at the end of an answer. A question ends with `answer`;
  // the last `shared` tokens of `answer` belong to the answer. A begin token before each text counts as a
  // round's end.
  void mask(const std::vector<std::string>& rounds, const std::string& answer, int64_t shared) {
    const std::vector<int32_t> nothing = tokeniser_.encode("");
    const int64_t begins = !nothing.empty() && nothing.front() == tokeniser_.special().begin ? 1 : 0;
    int64_t at = begins;
    hide(0, at);
    for (const std::string& round : rounds) {
      if (round.empty()) break;
      const std::vector<std::string> parts = split_by(round, answer);
      if (parts.size() != 2) break;
      hide(at, at + length(parts[0] + answer) - begins - shared);
      at += length(round) + 1 - begins;
    }
    hide(at, std::ssize(out_.labels));
    // LLaVA pads with the unknown token and does not count it.
    const int32_t pad = tokeniser_.special().unknown;
    const auto total = std::count_if(out_.ids.begin(), out_.ids.end(), [&](int64_t id) { return id != pad; });
    if (at == total) return;
    out_.mismatch = true;
    hide(0, std::ssize(out_.labels));
  }

  void hide(int64_t first, int64_t last) {
    const int64_t size = std::ssize(out_.labels);
    for (int64_t i = std::max<int64_t>(0, first); i < std::min(last, size); ++i)
      out_.labels[static_cast<size_t>(i)] = kNotLearned;
  }

 private:
  const Tokeniser& tokeniser_;
  TrainingText& out_;
};

// The first round includes the system text.
std::vector<std::string> mpt_rounds(const std::string& text, const std::string& sep) {
  const std::vector<std::string> parts = split_by(text, sep);
  const auto joined = [&](size_t first, size_t last) {
    last = std::min(last, parts.size());
    return first >= last ? std::string() : join(std::span(parts).subspan(first, last - first), sep);
  };
  std::vector<std::string> rounds = {joined(0, 3)};
  for (size_t i = 3; i < parts.size(); i += 2) rounds.push_back(joined(i, i + 2));
  return rounds;
}

// LLaVA 0 marks each turn with "### ", and learns everything except the user's turns.
void label_single(const Tokeniser& tokeniser, const ChatTemplate& chat, const std::vector<Turn>& turns,
                  TrainingText& out) {
  std::vector<std::string> parts = {chat.system + "\n\n"};
  for (const Turn& turn : turns)
    parts.push_back("### " + (turn.user ? chat.user : chat.assistant) + ": " + turn.text + "\n");
  out.text = join(parts, "") + "### ";
  out.ids = encode_with_images(tokeniser, out.text);
  out.labels = out.ids;
  Labeller labeller(tokeniser, out);
  int64_t at = labeller.length(parts[0]);
  labeller.hide(0, at);
  for (size_t i = 0; i < turns.size(); ++i) {
    const int64_t length = labeller.length(parts[i + 1]);
    if (turns[i].user) labeller.hide(at + 2, at + length);
    at += length;
  }
}

}  // namespace

const ChatTemplate& find_template(const std::string& name) {
  for (const ChatTemplate& chat : templates())
    if (chat.name == name) return chat;
  const std::vector<std::string> names = template_names();
  fail_usage("there is no chat template '", printable(name), "'", did_you_mean(name, names), ": ",
             join(names, ", "));
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const ChatTemplate& chat : templates()) names.push_back(chat.name);
  return names;
}

std::vector<Turn> with_images_first(std::vector<Turn> turns) {
  for (Turn& turn : turns) {
    const size_t images = split_by(turn.text, kImageWord).size() - 1;
    if (images == 0) continue;
    std::string text(trim(replaced(turn.text, kImageWord, "")));
    for (size_t i = 0; i < images; ++i) text = std::string(kImageWord) + "\n" + text;
    turn.text = std::string(trim(text));
  }
  return turns;
}

std::string conversation_text(const ChatTemplate& chat, const std::vector<Turn>& turns) {
  if (chat.style == TurnStyle::llama_2) return llama_2_text(chat, turns);
  std::string out = chat.system;
  if (chat.style != TurnStyle::plain && !chat.system.empty()) out += chat.sep;
  for (const Turn& turn : turns) {
    const std::string& role = turn.user ? chat.user : chat.assistant;
    const bool colon = chat.style == TurnStyle::two || chat.style == TurnStyle::single;
    const bool second = !turn.user && (chat.style == TurnStyle::two || chat.style == TurnStyle::plain);
    out += role + (colon ? ": " : "") + turn.text + (second ? chat.sep2 : chat.sep);
  }
  if (!turns.empty() && turns.back().user) {
    out += chat.assistant;
    if (chat.style == TurnStyle::two || chat.style == TurnStyle::single) out += ":";
  }
  return out;
}

std::vector<int64_t> encode_with_images(const Tokeniser& tokeniser, std::string_view text) {
  std::vector<int64_t> out;
  const int32_t begin = tokeniser.special().begin;
  bool first = true;
  for (const std::string& part : split_by(text, kImageWord)) {
    const std::vector<int32_t> ids = tokeniser.encode(part);
    const bool begins = !ids.empty() && ids.front() == begin && begin >= 0;
    if (!first) out.push_back(kImageId);
    out.insert(out.end(), ids.begin() + (begins && !first ? 1 : 0), ids.end());
    first = false;
  }
  return out;
}

TrainingText training_text(const Tokeniser& tokeniser, const ChatTemplate& chat,
                           const std::vector<Turn>& given) {
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].user != (i % 2 == 0))
      fail("turn ", i + 1, " of a conversation is the ", given[i].user ? "user's" : "assistant's",
           "; they must alternate, the user's first");
  TrainingText out;
  if (chat.style == TurnStyle::plain) {
    check(given.size() == 2, "a plain conversation is an image and its caption, this one has ", given.size(),
          " turns");
    out.text = std::string(kImageWord) + given[1].text + chat.sep;
    out.ids = encode_with_images(tokeniser, out.text);
    out.labels = out.ids;
    Labeller labeller(tokeniser, out);
    labeller.hide(0, labeller.length(std::string(kImageWord)));
    return out;
  }
  const std::vector<Turn> turns = with_images_first(given);
  if (chat.style == TurnStyle::single) {
    label_single(tokeniser, chat, turns, out);
    return out;
  }
  out.text = conversation_text(chat, turns);
  out.ids = encode_with_images(tokeniser, out.text);
  out.labels = out.ids;
  Labeller labeller(tokeniser, out);
  switch (chat.style) {
    case TurnStyle::two:
      labeller.mask(split_by(out.text, chat.sep2), chat.sep + chat.assistant + ": ", 1);
      break;
    case TurnStyle::llama_2:
      labeller.mask(split_by(out.text, chat.sep2), "[/INST] ", 1);
      break;
    default:
      labeller.mask(mpt_rounds(out.text, chat.sep), chat.sep + chat.assistant, 1);
      break;
  }
  return out;
}

}  // namespace tessera
