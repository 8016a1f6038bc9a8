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

std::vector<std::string> parts_between_images(std::string_view text, bool images) {
  return images ? split_by(text, kImageWord) : std::vector<std::string>{std::string(text)};
}

// A turn of the text: the template's words before it, its own words, and the template's words after it.
struct TurnText {
  std::string before, own, after;
};

// The system text precedes the first turn.
std::vector<TurnText> turn_texts(const ChatTemplate& chat, const std::vector<Turn>& turns) {
  std::vector<TurnText> parts;
  const bool llama = chat.style == TurnStyle::llama_2, system = !chat.system.empty();
  const bool colon = chat.style == TurnStyle::two || chat.style == TurnStyle::single;
  for (const Turn& turn : turns) {
    if (llama) {
      parts.push_back(turn.user ? TurnText{chat.sep + "[INST] ", turn.text, " [/INST]"}
                                : TurnText{" ", turn.text, " " + chat.sep2});
      continue;
    }
    const bool second = !turn.user && (chat.style == TurnStyle::two || chat.style == TurnStyle::plain);
    parts.push_back({(turn.user ? chat.user : chat.assistant) + (colon ? ": " : ""), turn.text,
                     second ? chat.sep2 : chat.sep});
  }
  if (parts.empty()) return parts;
  std::string& first = parts.front().before;
  if (llama) {
    if (system) first += "<<SYS>>\n" + chat.system + "\n<</SYS>>\n\n";
    // As published: removes leading characters that occur in `sep`, not the string `sep`.
    first.erase(0, std::min(first.find_first_not_of(chat.sep), first.size()));
  } else if (system) {
    first.insert(0, chat.system + (chat.style != TurnStyle::plain ? chat.sep : ""));
  }
  return parts;
}

// Returns the token that ends an answer, or "" if the template's labels need none.
std::string end_of(const ChatTemplate& chat) {
  return chat.style == TurnStyle::two || chat.style == TurnStyle::llama_2 ? chat.sep2
         : chat.style == TurnStyle::mpt                                   ? chat.sep
                                                                          : "";
}

int64_t characters_in(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The tokens of encode_with_images(), with their positions in the text.
struct PlacedToken {
  int64_t id;
  TokenSpan span;
};
std::vector<PlacedToken> placed_tokens(const Tokeniser& tokeniser, std::string_view text, bool images) {
  std::vector<PlacedToken> out;
  const int32_t begin = tokeniser.special().begin;
  int64_t place = 0;
  bool first = true;
  for (const std::string& part : parts_between_images(text, images)) {
    const Encoding own = tokeniser.encode_with_offsets(part);
    if (!first) {
      const int64_t end = place + std::ssize(kImageWord);
      out.push_back({kImageId, {place, end}});
      place = end;
    }
    const bool begins = !own.ids.empty() && own.ids.front() == begin && begin >= 0;
    for (size_t i = begins && !first ? 1 : 0; i < own.ids.size(); ++i)
      out.push_back({own.ids[i], {own.offsets[i].start + place, own.offsets[i].end + place}});
    place += characters_in(part);
    first = false;
  }
  return out;
}

class Labeller {
 public:
  // Encodes the text; all tokens get labels until some are masked.
  Labeller(const Tokeniser& tokeniser, bool images, TrainingText& out)
      : tokeniser_(tokeniser), images_(images), out_(out) {
    out_.ids = encode_with_images(tokeniser_, out_.text, images_);
    out_.labels = out_.ids;
  }

  int64_t length(const std::string& text) const {
    return std::ssize(encode_with_images(tokeniser_, text, images_));
  }

  // Masks the questions as published: by the lengths of the rounds, each without its end token. The last
  // token of the words before an answer belongs to the answer. A begin token before each text counts as a
  // round's end.
  void mask(const std::vector<TurnText>& turns, const std::string& end) {
    const std::vector<int32_t> nothing = tokeniser_.encode("");
    const int64_t begins = !nothing.empty() && nothing.front() == tokeniser_.special().begin ? 1 : 0;
    int64_t at = begins;
    hide(0, at);
    for (size_t i = 0; i + 1 < turns.size(); i += 2) {
      const std::string question = turns[i].before + turns[i].own + turns[i].after + turns[i + 1].before;
      const std::string& after = turns[i + 1].after;
      const std::string round = question + turns[i + 1].own + after.substr(0, after.size() - end.size());
      hide(at, at + length(question) - begins - 1);
      at += length(round) + 1 - begins;
    }
    const bool whole = turns.size() % 2 == 0;
    if (whole ? at != std::ssize(out_.labels) : at > std::ssize(out_.labels)) return mask_by_place(turns);
    hide(at, std::ssize(out_.labels));
  }

  void hide(int64_t first, int64_t last) {
    const int64_t size = std::ssize(out_.labels);
    for (int64_t i = std::max<int64_t>(0, first); i < std::min(last, size); ++i)
      out_.labels[static_cast<size_t>(i)] = kNotLearned;
  }

 private:
  // Masks all tokens that do not overlap an answer or its end in the text. Used for tokenisers that encode
  // rounds differently from the whole text.
  void mask_by_place(const std::vector<TurnText>& turns) {
    std::vector<TokenSpan> answers;
    int64_t place = 0;
    const auto pass = [&](const std::string& part) {
      const int64_t before = place;
      place += characters_in(part);
      return before;
    };
    for (size_t i = 0; i < turns.size(); ++i) {
      pass(turns[i].before);
      const int64_t begin = pass(turns[i].own);
      pass(turns[i].after);
      if (i % 2 == 1) answers.push_back({begin, place});
    }
    const std::vector<PlacedToken> all = placed_tokens(tokeniser_, out_.text, images_);
    for (size_t i = 0; i < all.size(); ++i) {
      const TokenSpan span = all[i].span;
      const bool learned =
          span.end > span.start && std::any_of(answers.begin(), answers.end(), [&](TokenSpan answer) {
            return span.end > answer.start && span.start < answer.end;
          });
      out_.labels[i] = learned && all[i].id != kImageId ? all[i].id : kNotLearned;
    }
  }

  const Tokeniser& tokeniser_;
  bool images_;
  TrainingText& out_;
};

// LLaVA 0 marks each turn with "### ", and all tokens except the user's turns have a loss.
void label_single(const Tokeniser& tokeniser, const ChatTemplate& chat, const std::vector<Turn>& turns,
                  bool images, TrainingText& out) {
  std::vector<std::string> parts = {chat.system + "\n\n"};
  for (const Turn& turn : turns)
    parts.push_back("### " + (turn.user ? chat.user : chat.assistant) + ": " + turn.text + "\n");
  out.text = join(parts, "") + "### ";
  Labeller labeller(tokeniser, images, out);
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
  if (turns.empty() && chat.style != TurnStyle::llama_2)
    return chat.style != TurnStyle::plain && !chat.system.empty() ? chat.system + chat.sep : chat.system;
  std::string out;
  for (const TurnText& part : turn_texts(chat, turns)) out += part.before + part.own + part.after;
  if (!turns.empty() && turns.back().user && chat.style != TurnStyle::llama_2) {
    out += chat.assistant;
    if (chat.style == TurnStyle::two || chat.style == TurnStyle::single) out += ":";
  }
  return out;
}

std::vector<int64_t> encode_with_images(const Tokeniser& tokeniser, std::string_view text, bool images) {
  std::vector<int64_t> out;
  const int32_t begin = tokeniser.special().begin;
  bool first = true;
  for (const std::string& part : parts_between_images(text, images)) {
    const std::vector<int32_t> ids = tokeniser.encode(part);
    const bool begins = !ids.empty() && ids.front() == begin && begin >= 0;
    if (!first) out.push_back(kImageId);
    out.insert(out.end(), ids.begin() + (begins && !first ? 1 : 0), ids.end());
    first = false;
  }
  return out;
}

void check_template(const Tokeniser& tokeniser, const ChatTemplate& chat) {
  const std::string end = end_of(chat);
  if (!end.empty() && !tokeniser.find(end))
    fail("the tokeniser has no token '", end, "', with which the template ", chat.name, " ends an answer");
}

TrainingText training_text(const Tokeniser& tokeniser, const ChatTemplate& chat,
                           const std::vector<Turn>& given, bool images) {
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].user != (i % 2 == 0))
      fail("turn ", i + 1, " of a conversation is the ", given[i].user ? "user's" : "assistant's",
           "; they must alternate, the user's first");
  TrainingText out;
  if (chat.style == TurnStyle::plain) {
    check(given.size() == 2, "a plain conversation is an image and its caption, this one has ", given.size(),
          " turns");
    const std::string image(images ? kImageWord : "");
    out.text = image + given[1].text + chat.sep;
    Labeller labeller(tokeniser, images, out);
    labeller.hide(0, labeller.length(image));
    return out;
  }
  check_template(tokeniser, chat);
  const std::vector<Turn> turns = images ? with_images_first(given) : given;
  if (chat.style == TurnStyle::single) {
    label_single(tokeniser, chat, turns, images, out);
    return out;
  }
  out.text = conversation_text(chat, turns);
  Labeller(tokeniser, images, out).mask(turn_texts(chat, turns), end_of(chat));
  return out;
}

}  // namespace tessera
