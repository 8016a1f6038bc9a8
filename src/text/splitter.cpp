#include "text/tokeniser_steps.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "text/pattern.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

// \w in the splitters of the tokenizers library, which do not use Oniguruma's \w: it adds letter numerals,
// circled and squared letters, and the joiners of emoji.
constexpr const char* kRustWord =
    R"(\p{L}\p{M}\p{Nd}\p{Pc}\p{Nl}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}\x{200C}\x{200D})";
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behaviour { removed, isolated, with_previous, with_next, contiguous };

Behaviour read_behaviour(const std::string& name, const std::string& where) {
  if (name == "Removed") return Behaviour::removed;
  if (name == "Isolated") return Behaviour::isolated;
  if (name == "MergedWithPrevious") return Behaviour::with_previous;
  if (name == "MergedWithNext") return Behaviour::with_next;
  if (name == "Contiguous") return Behaviour::contiguous;
  fail(where, ": the behaviour '", printable(name), "' of a split is not known");
}

struct Part {
  size_t start, end;
  bool match;
};

// Applies a behaviour to parts that cover a text without gaps.
std::vector<Part> behave(const std::vector<Part>& parts, Behaviour behaviour) {
  std::vector<Part> out;
  bool was_match = false;  // merged with the previous part, as in the library
  for (const Part& part : parts) {
    const bool first = out.empty();
    switch (behaviour) {
      case Behaviour::removed:
        if (!part.match) out.push_back(part);
        break;
      case Behaviour::isolated:
        out.push_back(part);
        break;
      case Behaviour::contiguous:
        if (!first && part.match == was_match)
          out.back().end = part.end;
        else
          out.push_back(part);
        break;
      case Behaviour::with_previous:
        if (part.match && !was_match && !first)
          out.back().end = part.end;
        else
          out.push_back(part);
        break;
      case Behaviour::with_next:
        if (was_match && !part.match && !first)
          out.back().end = part.end;
        else
          out.push_back(part);
        break;
    }
    was_match = part.match;
  }
  return out;
}

void put_parts(const AlignedText& text, const std::vector<Part>& parts, std::vector<AlignedText>& out) {
  for (const Part& part : parts)
    if (part.end > part.start) out.push_back(text.part(part.start, part.end));
}

std::vector<Part> parts_by_pattern(const AlignedText& text, const Pattern& pattern, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  uint64_t own = Pattern::steps_for(text.chars.size());
  uint64_t& steps = text.limits ? text.limits->steps : own;
  while (const auto match = pattern.find(text.chars, done, steps)) {
    if (match->start > done) parts.push_back({done, match->start, invert});
    parts.push_back({match->start, match->end, !invert});
    done = match->end;
  }
  if (done < text.chars.size()) parts.push_back({done, text.chars.size(), invert});
  return parts;
}

class PatternSplit : public Splitter {
 public:
  PatternSplit(Pattern pattern, Behaviour behaviour, bool invert)
      : pattern_(std::move(pattern)), behaviour_(behaviour), invert_(invert) {}
  void apply(std::vector<AlignedText>& pieces) const override {
    std::vector<AlignedText> out;
    for (const AlignedText& piece : pieces)
      put_parts(piece, behave(parts_by_pattern(piece, pattern_, invert_), behaviour_), out);
    pieces = std::move(out);
  }

 private:
  Pattern pattern_;
  Behaviour behaviour_;
  bool invert_;
};

// Each character that satisfies a predicate is a separate match.
class CharacterSplit : public Splitter {
 public:
  CharacterSplit(bool (*predicate)(char32_t), Behaviour behaviour)
      : predicate_(predicate), behaviour_(behaviour) {}
  void apply(std::vector<AlignedText>& pieces) const override {
    std::vector<AlignedText> out;
    for (const AlignedText& piece : pieces) {
      std::vector<Part> parts;
      for (size_t i = 0; i < piece.chars.size(); ++i) {
        const bool match = predicate_(piece.chars[i]);
        if (!match && !parts.empty() && !parts.back().match)
          parts.back().end = i + 1;
        else
          parts.push_back({i, i + 1, match});
      }
      put_parts(piece, behave(parts, behaviour_), out);
    }
    pieces = std::move(out);
  }

 private:
  bool (*predicate_)(char32_t);
  Behaviour behaviour_;
};

bool is_number(char32_t c) { return in_categories(c, category_mask("N")); }

class ByteLevel : public Splitter {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, const std::string& where)
      : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_ = std::make_unique<PatternSplit>(Pattern(kGpt2, where), Behaviour::isolated, false);
  }
  void apply(std::vector<AlignedText>& pieces) const override {
    if (add_prefix_space_)
      for (AlignedText& piece : pieces)
        if (piece.chars.empty() || piece.chars[0] != ' ') piece.prepend(U" ");
    if (split_) split_->apply(pieces);
    for (AlignedText& piece : pieces) to_byte_characters(piece);
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PatternSplit> split_;
};

class Metaspace : public Splitter {
 public:
  Metaspace(const Json& settings, const std::string& where) : split_(settings.value("split", true)) {
    const std::u32string mark = to_code_points(settings.value("replacement", "\u2581"), where);
    if (mark.size() != 1) fail(where, ": the replacement of a Metaspace must be one character");
    mark_ = mark[0];
    scheme_ = settings.value("prepend_scheme", settings.value("add_prefix_space", true) ? "always" : "never");
  }
  void apply(std::vector<AlignedText>& pieces) const override {
    std::vector<AlignedText> out;
    for (AlignedText& piece : pieces) {
      std::replace(piece.chars.begin(), piece.chars.end(), U' ', mark_);
      const bool first = !piece.spans.empty() && piece.spans[0].start == 0;
      const bool wanted = scheme_ == "always" || (scheme_ == "first" && first);
      if (wanted && !piece.chars.empty() && piece.chars[0] != mark_)
        piece.prepend(std::u32string_view(&mark_, 1));
      if (!split_) {
        out.push_back(std::move(piece));
        continue;
      }
      for (size_t start = 0; start < piece.chars.size();) {
        const size_t end = std::min(piece.chars.find(mark_, start + 1), piece.chars.size());
        out.push_back(piece.part(start, end));
        start = end;
      }
    }
    pieces = std::move(out);
  }

 private:
  bool split_;
  char32_t mark_ = 0;
  std::string scheme_;
};

// Splits into pieces of `length` characters.
class FixedLength : public Splitter {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(std::vector<AlignedText>& pieces) const override {
    std::vector<AlignedText> out;
    for (const AlignedText& piece : pieces)
      for (size_t start = 0; start < piece.chars.size();) {
        const size_t end = start + std::min(length_, piece.chars.size() - start);
        out.push_back(piece.part(start, end));
        start = end;
      }
    pieces = std::move(out);
  }

 private:
  size_t length_;
};

class Sequence : public Splitter {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Splitter>> parts) : parts_(std::move(parts)) {}
  void apply(std::vector<AlignedText>& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<Splitter>> parts_;
};

template <class... Parts>
std::unique_ptr<Splitter> in_turn(Parts... part) {
  std::vector<std::unique_ptr<Splitter>> parts;
  (parts.push_back(std::move(part)), ...);
  return std::make_unique<Sequence>(std::move(parts));
}

std::unique_ptr<Splitter> by_spaces() {
  return std::make_unique<CharacterSplit>(&is_space, Behaviour::removed);
}

std::unique_ptr<Splitter> by_delimiter(const Json& settings, const std::string& where) {
  const std::u32string delimiter = to_code_points(settings.at("delimiter").get<std::string>(), where);
  if (delimiter.size() != 1) fail(where, ": the delimiter of a CharDelimiterSplit must be one character");
  return std::make_unique<PatternSplit>(Pattern::literal(delimiter), Behaviour::removed, false);
}

std::unique_ptr<Splitter> by_length(const Json& settings, const std::string& where) {
  const int64_t length =
      json_integer(settings.value("length", Json(5)), where, "the length of a FixedLength", 1);
  return std::make_unique<FixedLength>(static_cast<size_t>(length));
}

std::unique_ptr<Splitter> sequence_of(const Json& settings, const std::string& where) {
  std::vector<std::unique_ptr<Splitter>> parts;
  for (const Json& part : settings.at("pretokenizers")) {
    if (part.is_null()) fail(where, ": a splitter within a sequence is null");
    parts.push_back(make_splitter(part, where));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

const std::array<char32_t, 256>& byte_characters() {
  static const auto table = [] {
    std::array<char32_t, 256> all{};
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      all[byte] = printed ? byte : next++;
    }
    return all;
  }();
  return table;
}

}  // namespace

char32_t byte_character(unsigned char byte) { return byte_characters()[byte]; }

int character_byte(char32_t c) {
  static const auto table = [] {
    std::array<int, 324> all{};
    all.fill(-1);
    for (unsigned byte = 0; byte < 256; ++byte) all[byte_characters()[byte]] = static_cast<int>(byte);
    return all;
  }();
  return c < table.size() ? table[c] : -1;
}

void to_byte_characters(AlignedText& text) {
  AlignedText out = text.successor();
  std::string bytes;
  for (size_t i = 0; i < text.chars.size(); ++i) {
    bytes.clear();
    append_utf8(text.chars[i], bytes);
    for (const char byte : bytes) out.add(byte_character(static_cast<unsigned char>(byte)), text.spans[i]);
  }
  text.become(std::move(out));
}

std::unique_ptr<Splitter> make_splitter(const Json& settings, const std::string& where) {
  if (settings.is_null()) return nullptr;
  const std::string type = settings.at("type").get<std::string>();
  const auto behaviour = [&](const char* otherwise) {
    return read_behaviour(settings.value("behavior", otherwise), where);
  };
  if (type == "ByteLevel")
    return std::make_unique<ByteLevel>(settings.value("add_prefix_space", true),
                                       settings.value("use_regex", true), where);
  if (type == "Split")
    return std::make_unique<PatternSplit>(read_pattern(settings.at("pattern"), where), behaviour("Isolated"),
                                          settings.value("invert", false));
  if (type == "Metaspace") return std::make_unique<Metaspace>(settings, where);
  if (type == "WhitespaceSplit") return by_spaces();
  if (type == "Whitespace")
    return std::make_unique<PatternSplit>(Pattern(text("[", kRustWord, "]+|[^\\s", kRustWord, "]+"), where),
                                          Behaviour::removed, true);
  if (type == "Punctuation") return std::make_unique<CharacterSplit>(&is_punctuation, behaviour("Isolated"));
  if (type == "BertPreTokenizer")
    return in_turn(by_spaces(), std::make_unique<CharacterSplit>(&is_punctuation, Behaviour::isolated));
  if (type == "CharDelimiterSplit") return by_delimiter(settings, where);
  if (type == "FixedLength") return by_length(settings, where);
  if (type == "Digits")
    return std::make_unique<CharacterSplit>(
        &is_number, settings.value("individual_digits", false) ? Behaviour::isolated : Behaviour::contiguous);
  if (type == "Sequence") return sequence_of(settings, where);
  fail(where, ": the way of splitting '", printable(type), "' is not known");
}

}  // namespace tessera::tokens
