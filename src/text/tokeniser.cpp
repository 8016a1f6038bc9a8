#include "text/tokeniser.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/gzip.h"
#include "io/files/json.h"
#include "io/files/path.h"
#include "text/character_trie.h"
#include "text/piece_model.h"
#include "text/tokeniser_steps.h"

namespace tessera {

using nlohmann::json;
using namespace tokens;

namespace {

constexpr JsonLimits kTreeLimits = {uint64_t{256} << 20, 32, size_t{1} << 22};
constexpr uint64_t kMaxFile = uint64_t{256} << 20;
constexpr size_t kCachedPiece = 48, kCachedPieces = 1 << 18;

// A token that is searched for in the text before splitting.
struct AddedToken {
  int32_t id = 0;
  std::u32string content;
  bool special = false, normalized = false, single_word = false, strip_left = false, strip_right = false;
};

// A piece of text, or an added token (id >= 0) found in it.
struct Section {
  AlignedText text;
  int32_t id = -1;
};

bool is_word(char32_t c) {
  return in_categories(
      c, category_mask("L") | category_mask("M") | bit(Category::Nd) | bit(Category::Nl) | bit(Category::Pc));
}

// Finds added tokens in a text: from the left, the longest at each position.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token) {
    trie_.insert(token.content, static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(token);
  }

  void split(AlignedText text, std::vector<Section>& out) const {
    const std::u32string_view chars = text.chars;
    size_t done = 0;
    const auto put_text = [&](size_t end) {
      if (end > done) out.push_back({text.part(done, end), -1});
    };
    for (size_t at = 0; !tokens_.empty() && at < chars.size();) {
      const CharacterTrie::Hit hit = trie_.longest(chars.substr(at));
      size_t start = at, end = at + hit.length;
      at += std::max<size_t>(hit.length, 1);  // a matched token is skipped even if it is then rejected
      if (hit.length == 0) continue;
      const AddedToken& token = tokens_[static_cast<size_t>(hit.value)];
      const bool inside =
          (start > 0 && is_word(chars[start - 1])) || (end < chars.size() && is_word(chars[end]));
      if (token.single_word && inside) continue;
      // A token of blanks may match blanks that the previous token stripped, unless it strips blanks itself.
      const bool again = end <= done;
      while (token.strip_left && start > done && is_space(chars[start - 1])) --start;
      while (token.strip_right && !again && end < chars.size() && is_space(chars[end])) ++end;
      if (token.strip_left) start = std::max(start, done);
      put_text(start);
      if (start < end) out.push_back({text.part(start, end), token.id});
      done = token.strip_right ? std::max(done, end) : end;
    }
    if (done == 0 && !chars.empty())
      out.push_back({std::move(text), -1});
    else
      put_text(chars.size());
  }

 private:
  std::vector<AddedToken> tokens_;
  CharacterTrie trie_;
};

AddedToken added_token_of(const json& entry, const std::string& where) {
  AddedToken token;
  token.content = to_code_points(entry.at("content").get<std::string>(), where);
  token.special = entry.value("special", false);
  token.normalized = entry.value("normalized", !token.special);
  token.single_word = entry.value("single_word", false);
  token.strip_left = entry.value("lstrip", false);
  token.strip_right = entry.value("rstrip", false);
  return token;
}

}  // namespace

struct Tokeniser::State {
  std::string definition, kind, where;
  std::unique_ptr<Normaliser> normaliser;
  std::unique_ptr<Splitter> splitter;
  std::unique_ptr<PieceModel> model;
  std::unique_ptr<Decoder> decoder;
  AddedTokenFinder raw, normalised;  // searched for before and after normalisation
  std::map<int32_t, AddedToken> added;
  std::map<std::string, int32_t, std::less<>> added_ids;
  std::vector<bool> special_ids;
  std::vector<int32_t> head, tail;  // the template's tokens around a single text
  bool trims_offsets = false, trims_for_prefix_space = false;
  SpecialTokens roles;
  int32_t size = 0;

  State(const json& tree, const std::string& of);
  std::optional<int32_t> find(std::string_view token) const;
  void read_added(const json& tree);
  void check_added(const std::string& content, int64_t id, std::map<int64_t, std::string>& given) const;
  int32_t next_added() const;
  void read_processor(const json& settings);
  void read_template(const json& settings);
  int32_t placed_id(const json& id) const;
  void find_roles();
  std::vector<Section> sections(std::u32string chars, TextLimits& limits) const;
  void encode_pieces(const std::vector<AlignedText>& pieces, Encoding& out, bool with_special,
                     bool offsets) const;
  Encoding encode(std::string_view text, bool with_special, bool offsets) const;
  TokenSpan trimmed(const AlignedText& piece, size_t start, size_t end, bool first) const;
};

Tokeniser::State::State(const json& tree, const std::string& of) : where(of) {
  const auto part = [&](const char* key) { return tree.contains(key) ? tree[key] : json(); };
  if (!tree.is_object() || !tree.contains("model"))
    fail(where, " holds no tokeniser: a tree with a 'model', as in tokenizer.json");
  check_steps(tree, where);
  normaliser = make_normaliser(part("normalizer"), where);
  splitter = make_splitter(part("pre_tokenizer"), where);
  decoder = make_decoder(part("decoder"), where);
  model = make_piece_model(tree["model"], where);
  kind = tree["model"].value("type", "BPE");
  size = model->vocabulary().size();
  read_added(tree);
  if (const json processor = part("post_processor"); !processor.is_null()) read_processor(processor);
  find_roles();
  if (const json pad = part("pad_token"); pad.is_string())
    if (const auto id = find(pad.get<std::string>())) roles.pad = *id;
  definition = tree.dump();
}

std::optional<int32_t> Tokeniser::State::find(std::string_view token) const {
  if (const auto found = added_ids.find(token); found != added_ids.end()) return found->second;
  return model->vocabulary().find(token);
}

// A number has one token, and a token one number. `given`: the tokens before it by their numbers in the file.
void Tokeniser::State::check_added(const std::string& content, int64_t id,
                                   std::map<int64_t, std::string>& given) const {
  const auto refuse = [&](const std::string& other) {
    fail(where, ": the added token '", printable(content), "' has the id ", id, " of ", other);
  };
  const Vocabulary& known = model->vocabulary();
  if (const std::string& other = known.token(static_cast<int32_t>(id)); !other.empty() && other != content)
    refuse(text("the token '", printable(other), "'"));
  const auto [first, fresh] = given.emplace(id, content);
  if (first->second != content) refuse(text("the added token '", printable(first->second), "'"));
  const std::optional<int32_t> own = find(content);
  if (own && (known.find(content) ? *own != id : fresh))
    fail(where, ": the added token '", printable(content), "' has the ids ", *own, " and ", id);
}

// Returns the number of a further added token. As in tokenizers it is the one after those before it, whatever the
// file has, so that gaps are closed; here it is free too.
int32_t Tokeniser::State::next_added() const {
  const Vocabulary& known = model->vocabulary();
  auto next = static_cast<int32_t>(known.count());
  if (!added.empty()) next = std::max(next, added.rbegin()->first + 1);
  while (!known.token(next).empty()) ++next;
  return next;
}

void Tokeniser::State::read_added(const json& tree) {
  constexpr int64_t kMostAdded = int64_t{1} << 22;
  const bool verbatim = !normaliser || tree["normalizer"].value("type", "") == "SentencePiece";
  const json entries = tree.value("added_tokens", json::array());
  TextLimits limits(entries.size(), where);
  std::map<int64_t, std::string> given;
  for (const json& entry : entries) {
    const std::string content = entry.at("content").get<std::string>();
    const int64_t id = json_integer(entry.at("id"), where,
                                    "the id of the added token '" + printable(content) + "'", 0, kMostAdded);
    if (content.empty()) continue;
    check_added(content, id, given);
    AddedToken token = added_token_of(entry, where);
    token.id = find(content).value_or(next_added());
    size = std::max(size, token.id + 1);
    added_ids[content] = token.id;
    added[token.id] = token;
    if (token.normalized && !verbatim) {
      AlignedText normal = aligned(token.content);
      normal.limits = &limits;
      normaliser->apply(normal);
      token.content = normal.chars;
    }
    if (!token.content.empty()) (token.normalized ? normalised : raw).add(token);
  }
  special_ids.resize(static_cast<size_t>(size));
  for (const auto& [id, token] : added) special_ids[static_cast<size_t>(id)] = token.special;
  for (const json& name : tree.value("special_tokens", json::array()))
    if (const auto id = name.is_string() ? find(name.get<std::string>()) : std::nullopt)
      special_ids[static_cast<size_t>(*id)] = true;
}

int32_t Tokeniser::State::placed_id(const json& id) const {
  return static_cast<int32_t>(json_integer(id, where, "an id of the post-processor", 0, size - 1));
}

void Tokeniser::State::read_processor(const json& settings) {
  const std::string type = settings.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const json& part : settings.at("processors")) read_processor(part);
    return;
  }
  if (type == "TemplateProcessing") return read_template(settings);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    head = {placed_id(settings.at("cls").at(1))};
    tail = {placed_id(settings.at("sep").at(1))};
  } else if (type != "ByteLevel") {
    fail(where, ": the post-processor '", printable(type), "' is not known");
  }
  if (type != "BertProcessing") {
    trims_offsets = settings.value("trim_offsets", true);
    trims_for_prefix_space = settings.value("add_prefix_space", true);
  }
}

void Tokeniser::State::read_template(const json& settings) {
  bool behind = false;
  for (const json& part : settings.at("single")) {
    if (part.contains("Sequence")) {
      if (behind) fail(where, ": the template holds the text twice");
      behind = true;
      continue;
    }
    const std::string name = part.at("SpecialToken").at("id").get<std::string>();
    for (const json& id : settings.at("special_tokens").at(name).at("ids"))
      (behind ? tail : head).push_back(placed_id(id));
  }
}

void Tokeniser::State::find_roles() {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const auto id = find(name)) return *id;
    return -1;
  };
  roles.unknown = model->unknown();
  roles.begin =
      !head.empty()
          ? head.front()
          : first_of({"<s>", "<|begin_of_text|>", "<|startoftext|>", "[CLS]", "<bos>", "<|endoftext|>"});
  roles.end =
      !tail.empty() ? tail.back() : first_of({"</s>", "<|end_of_text|>", "<|endoftext|>", "[SEP]", "<eos>"});
  roles.pad = first_of({"<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"});
}

// Splits the text at added tokens and normalises the rest.
std::vector<Section> Tokeniser::State::sections(std::u32string chars, TextLimits& limits) const {
  std::vector<Section> first, out;
  AlignedText whole = aligned(std::move(chars));
  whole.limits = &limits;
  raw.split(std::move(whole), first);
  for (Section& section : first) {
    if (section.id >= 0) {
      out.push_back(std::move(section));
      continue;
    }
    if (normaliser) normaliser->apply(section.text);
    normalised.split(std::move(section.text), out);
  }
  return out;
}

// Returns the position of the characters from `start` to `end` of a piece, without blanks at its ends.
TokenSpan Tokeniser::State::trimmed(const AlignedText& piece, size_t start, size_t end, bool first) const {
  TokenSpan span{piece.spans[start].start, piece.spans[end - 1].end};
  if (!trims_offsets) return span;
  const auto blank = [&](size_t i) {
    return piece.chars[i] == byte_character(' ') || is_space(piece.chars[i]);
  };
  int64_t left = 0, right = 0;
  for (size_t i = start; i < end && blank(i); ++i) ++left;
  for (size_t i = end; i > start && blank(i - 1); --i) ++right;
  // A single leading blank was inserted; several blanks were not.
  if (left == 1 && trims_for_prefix_space && (first || span.start == 0)) left = 0;
  span.start = std::min(span.start + left, span.end);
  if (span.end >= right) span.end = std::max(span.end - right, span.start);
  return span;
}

void Tokeniser::State::encode_pieces(const std::vector<AlignedText>& pieces, Encoding& out, bool with_special,
                                     bool offsets) const {
  // Words repeat, so each distinct word of a long text is merged only once.
  std::unordered_map<std::u32string, std::vector<PieceToken>> cache;
  std::vector<PieceToken> fresh;
  const size_t front = with_special ? head.size() : 0;
  for (const AlignedText& piece : pieces) {
    if (piece.chars.empty()) continue;
    const std::vector<PieceToken>* found = &fresh;
    if (pieces.size() > 16 && piece.chars.size() <= kCachedPiece) {
      const auto [at, is_new] = cache.size() < kCachedPieces ? cache.try_emplace(piece.chars)
                                                             : std::pair(cache.find(piece.chars), false);
      if (at != cache.end()) {
        if (is_new) model->encode(piece.chars, at->second);
        found = &at->second;
      }
    }
    if (found == &fresh) {
      fresh.clear();
      model->encode(piece.chars, fresh);
    }
    for (const PieceToken& token : *found) {
      if (offsets) out.offsets.push_back(trimmed(piece, token.start, token.end, out.ids.size() == front));
      out.ids.push_back(token.id);
    }
  }
}

Encoding Tokeniser::State::encode(std::string_view text, bool with_special, bool offsets) const {
  std::u32string chars = to_code_points(text, "the text to encode");
  Encoding out;
  const auto put_template = [&](const std::vector<int32_t>& ids) {
    if (!with_special) return;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    if (offsets) out.offsets.resize(out.ids.size());
  };
  put_template(head);
  std::vector<AlignedText> pieces;
  const auto flush = [&] {
    if (splitter) splitter->apply(pieces);
    encode_pieces(pieces, out, with_special, offsets);
    pieces.clear();
  };
  TextLimits limits(chars.size(), where);
  for (Section& section : sections(std::move(chars), limits)) {
    if (section.id < 0) {
      pieces.push_back(std::move(section.text));
      continue;
    }
    flush();
    const bool first = out.ids.size() == (with_special ? head.size() : 0);
    if (offsets) out.offsets.push_back(trimmed(section.text, 0, section.text.chars.size(), first));
    out.ids.push_back(section.id);
  }
  flush();
  put_template(tail);
  return out;
}

Tokeniser Tokeniser::from_definition(std::string_view document, const std::string& where) {
  const json tree = parse_json(document, where, kTreeLimits);
  try {
    return Tokeniser(std::make_shared<const State>(tree, where));
  } catch (const json::exception& error) {
    // The library's message ends with the cause: "key 'merges' not found".
    const std::string what = error.what();
    const size_t colon = what.find("] ");
    fail(where,
         " is no usable tokeniser: ", printable(colon == std::string::npos ? what : what.substr(colon + 2)));
  }
}

Tokeniser Tokeniser::from_bytes(std::span<const std::byte> bytes, const std::string& where) {
  if (is_gzip(bytes)) {
    const auto plain = inflate_gzip(bytes, where, {kMaxFile, 1100});
    return Tokeniser(std::make_shared<const State>(clip_definition(as_text(plain), where), where));
  }
  const std::string_view content = as_text(bytes);
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && content[first] == '{') return from_definition(content, where);
  if (content.substr(0, 100).find("#version") != std::string_view::npos)
    return Tokeniser(std::make_shared<const State>(clip_definition(content, where), where));
  return Tokeniser(std::make_shared<const State>(sentencepiece_definition(bytes, where), where));
}

Tokeniser Tokeniser::load(const std::string& given) {
  namespace fs = std::filesystem;
  std::string path = given;
  if (fs::is_directory(given)) {
    const std::string folder = without_cache(given);
    static constexpr std::array kNames = {"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model",
                                          "bpe_simple_vocab_16e6.txt.gz"};
    const auto* const found = std::find_if(
        kNames.begin(), kNames.end(), [&](const char* name) { return fs::exists(fs::path(folder) / name); });
    if (found == kNames.end()) return load_stored_tokeniser(folder);
    path = (fs::path(folder) / *found).string();
  }
  if (path.ends_with(".safetensors")) return load_stored_tokeniser(path);
  const std::string name = fs::path(path).filename().string();
  if (name == "merges.txt") path = (fs::path(path).parent_path() / "vocab.json").string();
  const auto bytes = read_file(path, kMaxFile);
  if (name != "merges.txt" && name != "vocab.json") return from_bytes(bytes, path);
  const std::string merges = (fs::path(path).parent_path() / "merges.txt").string();
  if (!fs::exists(merges)) fail(path, " needs merges.txt next to it");
  try {
    const json tree = merges_definition(as_text(bytes), read_text(merges), path);
    return Tokeniser(std::make_shared<const State>(tree, path));
  } catch (const json::exception&) {
    fail(path, " holds no vocabulary: an object of tokens and ids");
  }
}

std::vector<int32_t> Tokeniser::encode(std::string_view text, bool special) const {
  return state_->encode(text, special, false).ids;
}

Encoding Tokeniser::encode_with_offsets(std::string_view text, bool special) const {
  return state_->encode(text, special, true);
}

FittedText Tokeniser::fit(std::string_view text, int64_t length, int32_t pad) const {
  const int64_t room = length - std::ssize(state_->head) - std::ssize(state_->tail);
  if (room < 0)
    fail("a text of ", length, " tokens has no room for the ", length - room,
         " special tokens of the tokeniser");
  const std::vector<int32_t> own = encode(text, false);
  FittedText out;
  const int64_t taken = std::min<int64_t>(room, std::ssize(own));
  out.cut = std::ssize(own) - taken;
  out.ids = state_->head;
  out.ids.insert(out.ids.end(), own.begin(), own.begin() + taken);
  out.ids.insert(out.ids.end(), state_->tail.begin(), state_->tail.end());
  out.used = std::ssize(out.ids);
  out.ids.resize(static_cast<size_t>(length), pad);
  return out;
}

std::string Tokeniser::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (id < 0 || id >= state_->size) fail("no token has the id ", id, ": the tokeniser has ", state_->size);
    if (skip_special && is_special(id)) continue;
    tokens.push_back(token(id));
  }
  if (state_->decoder) {
    tokens = state_->decoder->apply(std::move(tokens));
  } else {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }
  return join(tokens, "");
}

int64_t Tokeniser::size() const { return state_->size; }

std::optional<int32_t> Tokeniser::find(std::string_view token) const { return state_->find(token); }

const std::string& Tokeniser::token(int32_t id) const {
  if (const auto found = state_->added.find(id); found != state_->added.end()) {
    // Prefer the vocabulary's copy of the text, which lives as long as the tokeniser.
    const std::string& known = state_->model->vocabulary().token(id);
    if (!known.empty()) return known;
    for (const auto& [text, number] : state_->added_ids)
      if (number == id) return text;
  }
  return state_->model->vocabulary().token(id);
}

bool Tokeniser::is_special(int32_t id) const {
  return id >= 0 && id < std::ssize(state_->special_ids) && state_->special_ids[static_cast<size_t>(id)];
}

const SpecialTokens& Tokeniser::special() const { return state_->roles; }

const std::string& Tokeniser::kind() const { return state_->kind; }

std::string Tokeniser::definition() const { return state_->definition; }

Tokeniser Tokeniser::with_tokens(const std::vector<std::string>& added) const {
  json tree = json::parse(definition());
  json& tokens = tree["added_tokens"];
  if (!tokens.is_array()) tokens = json::array();
  int64_t next = state_->next_added();
  for (const std::string& token : added)
    if (!find(token)) tokens.push_back(added_token(token, next++, /*special=*/true));
  return from_definition(tree.dump(), "the tokeniser with further tokens");
}

}  // namespace tessera
