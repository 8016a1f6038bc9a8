#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "text/pattern.h"
#include "text/tokeniser_steps.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;

// Canonical ordering of marks, then composition (Unicode Standard Annex 15).
class NormalForm : public Normaliser {
 public:
  NormalForm(bool compatible, bool compose) : compatible_(compatible), compose_(compose) {}

  void apply(AlignedText& text) const override {
    if (std::all_of(text.chars.begin(), text.chars.end(), [](char32_t c) { return c < 0x80; })) return;
    std::vector<ChangedCharacter> out;
    std::u32string parts;
    for (const char32_t c : text.chars) {
      parts.clear();
      decompose(c, compatible_, parts);
      for (size_t i = 0; i < parts.size(); ++i) out.push_back({parts[i], i == 0 ? 0 : 1});
    }
    order(out);
    change(text, compose_ ? composed_text(out) : out);
  }

 private:
  static void order(std::vector<ChangedCharacter>& text) {
    const auto is_starter = [](const ChangedCharacter& one) { return combining_class(one.c) == 0; };
    for (auto at = text.begin(); at != text.end();) {
      at = std::find_if_not(at, text.end(), is_starter);
      const auto end = std::find_if(at, text.end(), is_starter);
      std::stable_sort(at, end, [](const ChangedCharacter& a, const ChangedCharacter& b) {
        return combining_class(a.c) < combining_class(b.c);
      });
      at = end;
    }
  }

  static std::vector<ChangedCharacter> composed_text(const std::vector<ChangedCharacter>& text) {
    std::vector<ChangedCharacter> out;
    std::ptrdiff_t starter = -1;
    int last_class = 0;
    for (const ChangedCharacter& one : text) {
      const int mark = combining_class(one.c);
      const bool free =
          starter >= 0 && (std::ssize(out) == starter + 1 || (last_class != 0 && last_class < mark));
      const char32_t both = free ? composed(out[static_cast<size_t>(starter)].c, one.c) : 0;
      if (both) {
        ChangedCharacter& whole = out[static_cast<size_t>(starter)];
        whole = {both, whole.change + one.change - 1};
        continue;
      }
      if (mark == 0) starter = std::ssize(out);
      last_class = mark;
      out.push_back(one);
    }
    return out;
  }

  bool compatible_, compose_;
};

// Replaces each character by the output of a function; the output keeps its place.
template <class Function>
void map_characters(AlignedText& text, const Function& function) {
  AlignedText out = text.successor();
  for (size_t i = 0; i < text.chars.size(); ++i)
    function(text.chars[i], [&](char32_t c) { out.add(c, text.spans[i]); });
  text.become(std::move(out));
}

void to_lower(AlignedText& text) {
  map_characters(text, [](char32_t c, const auto& put) {
    if (c < 0x80) return put(c >= 'A' && c <= 'Z' ? c + 32 : c);
    for (const char32_t small : lower(c)) put(small);
  });
}

void strip_accents(AlignedText& text) {
  map_characters(text, [](char32_t c, const auto& put) {
    if (category(c) != Category::Mn) put(c);
  });
}

class Lowercase : public Normaliser {
 public:
  void apply(AlignedText& text) const override { to_lower(text); }
};

// Unlike BERT's stripping, this also removes spacing and enclosing marks.
class StripAccents : public Normaliser {
 public:
  void apply(AlignedText& text) const override {
    map_characters(text, [](char32_t c, const auto& put) {
      if (!in_categories(c, category_mask("M"))) put(c);
    });
  }
};

class Strip : public Normaliser {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text) const override {
    size_t start = 0, end = text.chars.size();
    while (right_ && end > start && is_space(text.chars[end - 1])) --end;
    while (left_ && start < end && is_space(text.chars[start])) ++start;
    if (start > 0 || end < text.chars.size()) text = text.part(start, end);
  }

 private:
  bool left_, right_;
};

class Replace : public Normaliser {
 public:
  Replace(Pattern pattern, std::u32string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(AlignedText& text) const override {
    AlignedText out = text.successor();
    uint64_t own = Pattern::steps_for(text.chars.size());
    uint64_t& steps = text.limits ? text.limits->steps : own;
    size_t done = 0;
    const auto copy = [&](size_t end) {
      for (; done < end; ++done) out.add(text.chars[done], text.spans[done]);
    };
    while (const auto match = pattern_.find(text.chars, done, steps)) {
      copy(match->start);
      // The library gives the whole new text the place of the last character that it replaces.
      for (const char32_t c : content_) out.add(c, text.spans[match->end - 1]);
      done = match->end;
    }
    if (done == 0) return;
    copy(text.chars.size());
    text.become(std::move(out));
  }

 private:
  Pattern pattern_;
  std::u32string content_;
};

class Prepend : public Normaliser {
 public:
  explicit Prepend(std::u32string front) : front_(std::move(front)) {}
  void apply(AlignedText& text) const override {
    if (!text.chars.empty()) text.prepend(front_);
  }

 private:
  std::u32string front_;
};

// The replacements of Google's machine translation: removes controls, turns unusual blanks into plain ones.
class Nmt : public Normaliser {
 public:
  void apply(AlignedText& text) const override {
    map_characters(text, [](char32_t c, const auto& put) {
      const bool gone =
          (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xFEFF || c == 0xFFFD;
      if (!gone) put(blank ? U' ' : c);
    });
  }
};

class Bert : public Normaliser {
 public:
  explicit Bert(const Json& settings)
      : clean_(settings.value("clean_text", true)),
        chinese_(settings.value("handle_chinese_chars", true)),
        lowercase_(settings.value("lowercase", true)),
        accents_(settings.contains("strip_accents") && settings["strip_accents"].is_boolean()
                     ? settings["strip_accents"].get<bool>()
                     : lowercase_) {}

  void apply(AlignedText& text) const override {
    map_characters(text, [&](char32_t c, const auto& put) {
      const bool line_blank = c == '\t' || c == '\n' || c == '\r';
      if (clean_ && !line_blank && (c == 0xFFFD || in_categories(c, kControls))) return;
      const bool blank = line_blank || is_space(c);
      const bool ideograph = chinese_ && is_ideograph(c);
      if (ideograph) put(U' ');
      put(clean_ && blank ? U' ' : c);
      if (ideograph) put(U' ');
    });
    if (accents_) {
      NormalForm(false, false).apply(text);
      strip_accents(text);
    }
    if (lowercase_) to_lower(text);
  }

 private:
  static bool is_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }
  // Unassigned code points stay: a later Unicode version may assign them.
  static constexpr uint32_t kControls =
      bit(Category::Cc) | bit(Category::Cf) | bit(Category::Cs) | bit(Category::Co);
  bool clean_, chinese_, lowercase_, accents_;
};

// True if `c` joins the previous character into one visible character: marks, joiners, modifiers of emoji.
bool extends(char32_t before, char32_t c) {
  if (before == '\r') return c == '\n';
  if (in_categories(before, bit(Category::Cc) | bit(Category::Zl) | bit(Category::Zp))) return false;
  if (c < 0x300) return false;
  const bool hangul = (before >= 0x1100 && before < 0x1160 && c >= 0x1100 && c < 0x11A8) ||
                      (before >= 0x1160 && before < 0x1200 && c >= 0x1160 && c < 0x1200) ||
                      (before >= 0xAC00 && before < 0xD7A4 && c >= 0x1160 && c < 0x1200);
  return hangul || c == 0x200D || in_categories(c, category_mask("M")) || (c >= 0x1F3FB && c <= 0x1F3FF);
}

// A precompiled map as the tokenizers library applies it. If a visible character has less than six bytes and
// begins with a key, the shortest key replaces it; otherwise each code point is mapped separately.
class Precompiled : public Normaliser {
 public:
  explicit Precompiled(CharacterMap map) : map_(std::move(map)) {}

  void apply(AlignedText& text) const override {
    std::vector<ChangedCharacter> out;
    for (size_t i = 0; i < text.chars.size();) {
      size_t end = i + 1;
      while (end < text.chars.size() && extends(text.chars[end - 1], text.chars[end])) ++end;
      const std::u32string_view whole = std::u32string_view(text.chars).substr(i, end - i);
      if (whole.size() < 6 && put(whole, out))
        i = end;
      else
        for (; i < end; ++i)
          if (!put({&text.chars[i], 1}, out)) out.push_back({text.chars[i], 0});
      if (text.limits && out.size() > text.chars.size() + text.limits->inserted) text.limits->fail_too_long();
    }
    change(text, out);
  }

 private:
  bool put(std::u32string_view chars, std::vector<ChangedCharacter>& out) const {
    const std::string bytes = to_utf8(chars);
    if (bytes.size() >= 6) return false;
    const CharacterMap::Hit hit = map_.find(bytes, false);
    if (hit.length == 0) return false;
    const std::u32string replacement = to_code_points_lossy(hit.replacement);
    for (size_t i = 0; i < replacement.size(); ++i) out.push_back({replacement[i], i < chars.size() ? 0 : 1});
    // Removed characters count with the character before them; the library ignores them at the start of a
    // text.
    if (replacement.size() < chars.size() && !out.empty())
      out.back().change -= std::ssize(chars) - std::ssize(replacement);
    return true;
  }
  CharacterMap map_;
};

// SentencePiece's complete normaliser: the map by its longest keys, and white space.
class SentencePiece : public Normaliser {
 public:
  SentencePiece(const Json& settings, const std::string& where)
      : prefix_(settings.value("add_dummy_prefix", true)),
        collapse_(settings.value("remove_extra_whitespaces", true)),
        suffix_(settings.value("treat_whitespace_as_suffix", false)),
        blank_(settings.value("escape_whitespaces", true) ? U'\u2581' : U' ') {
    const std::string map = settings.value("precompiled_charsmap", "");
    if (!map.empty()) map_ = std::make_unique<CharacterMap>(CharacterMap::of_base64(map, where));
    for (const Json& word : settings.value("user_defined", Json::array()))
      user_defined_.insert(to_code_points(word.get<std::string>(), where), 0);
  }

  void apply(AlignedText& text) const override {
    AlignedText out = text.successor();
    Reading reading{text, to_utf8(text.chars)};
    const std::u32string& piece = reading.piece;
    const TokenSpan& span = reading.span;
    bool blank_before = collapse_, begun = false;
    while (reading.place < text.chars.size()) {
      next(reading);
      if (collapse_ && !begun && piece == U" ") continue;
      if (!begun && prefix_ && !suffix_) out.add(blank_, {span.start, span.start});
      begun = true;
      size_t skip = 0;
      while (blank_before && skip < piece.size() && piece[skip] == ' ') ++skip;
      for (size_t i = skip; i < piece.size(); ++i) out.add(piece[i] == ' ' ? blank_ : piece[i], span);
      if (skip < piece.size()) blank_before = piece.back() == ' ';
      if (!collapse_) blank_before = false;
    }
    while (collapse_ && !out.chars.empty() && out.chars.back() == blank_) {
      out.chars.pop_back();
      out.spans.pop_back();
    }
    if (begun && prefix_ && suffix_) out.add(blank_, {span.end, span.end});
    text.become(std::move(out));
  }

 private:
  // The text that is read piece by piece, with the next place.
  struct Reading {
    const AlignedText& text;
    std::string bytes;
    size_t at = 0, place = 0;  // in bytes, in characters
    std::u32string piece = {};
    TokenSpan span = {};
  };

  // Reads a key of the map as its replacement, or a word that stays, or a character.
  void next(Reading& r) const {
    const std::u32string_view rest = std::u32string_view(r.text.chars).substr(r.place);
    const size_t kept = user_defined_.longest(rest).length;
    const CharacterMap::Hit hit =
        map_ && kept == 0 ? map_->find(std::string_view(r.bytes).substr(r.at), true) : CharacterMap::Hit{};
    r.piece = hit.length ? to_code_points_lossy(hit.replacement)
                         : std::u32string(rest.substr(0, std::max<size_t>(kept, 1)));
    const size_t end = r.at + (hit.length ? hit.length : to_utf8(r.piece).size());
    r.span.start = r.text.spans[r.place].start;
    std::string skipped;
    for (; r.at < end && r.place < r.text.chars.size(); r.at += skipped.size(), ++r.place) {
      skipped.clear();
      append_utf8(r.text.chars[r.place], skipped);
      r.span.end = r.text.spans[r.place].end;
    }
  }

  bool prefix_, collapse_, suffix_;
  char32_t blank_;
  std::unique_ptr<CharacterMap> map_;
  CharacterTrie user_defined_;
};

class ByteLevel : public Normaliser {
 public:
  void apply(AlignedText& text) const override { to_byte_characters(text); }
};

class ClipText : public Normaliser {
 public:
  void apply(AlignedText& text) const override {
    const std::u32string chars = clean_caption(text.chars);
    // Repairs do not track places. A text of unchanged length keeps its places; otherwise each is the whole
    // text.
    const bool same = chars.size() == text.chars.size();
    const TokenSpan whole{text.spans.empty() ? 0 : text.spans.front().start,
                          text.spans.empty() ? 0 : text.spans.back().end};
    AlignedText out = text.successor();
    for (size_t i = 0; i < chars.size(); ++i) out.add(chars[i], same ? text.spans[i] : whole);
    text.become(std::move(out));
  }
};

class Sequence : public Normaliser {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normaliser>> parts) : parts_(std::move(parts)) {}
  void apply(AlignedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normaliser>> parts_;
};

}  // namespace

// Compatible forms have up to 18 characters for one; the bytes of a character are at most four.
TextLimits::TextLimits(size_t characters, const std::string& of)
    : steps(Pattern::steps_for(characters)),
      inserted(std::min((uint64_t{1} << 20) + 32 * uint64_t{characters},
                        std::max(uint64_t{1} << 25, 4 * uint64_t{characters}))),
      where(of) {}

void TextLimits::fail_too_long() const {
  fail(where,
       ": its normaliser or its way of splitting makes this text too long: at most 2^20 characters and ",
       "32 for each of its own are added");
}

AlignedText AlignedText::successor() const {
  AlignedText out;
  out.limits = limits;
  if (limits) out.most = chars.size() + limits->inserted;
  out.chars.reserve(chars.size());
  out.spans.reserve(chars.size());
  return out;
}

void AlignedText::become(AlignedText&& changed) {
  if (limits && changed.chars.size() > chars.size()) limits->inserted -= changed.chars.size() - chars.size();
  chars = std::move(changed.chars);
  spans = std::move(changed.spans);
}

void AlignedText::prepend(std::u32string_view front) {
  if (limits) {
    if (front.size() > limits->inserted) limits->fail_too_long();
    limits->inserted -= front.size();
  }
  const TokenSpan span = spans.empty() ? TokenSpan{} : spans.front();
  chars.insert(0, front);
  spans.insert(spans.begin(), front.size(), span);
}

AlignedText aligned(std::u32string chars, int64_t first) {
  AlignedText out;
  out.chars = std::move(chars);
  out.spans.reserve(out.chars.size());
  for (int64_t i = 0; i < std::ssize(out.chars); ++i) out.spans.push_back({first + i, first + i + 1});
  return out;
}

void change(AlignedText& text, const std::vector<ChangedCharacter>& changed) {
  AlignedText out = text.successor();
  const TokenSpan front = text.spans.empty() ? TokenSpan{} : text.spans.front();
  size_t used = 0;  // characters of the text used so far
  for (const auto& [c, change] : changed) {
    const bool own = change <= 0 && used < text.spans.size();
    out.add(c, own        ? text.spans[used]
               : used > 0 ? text.spans[used - 1]
                          : TokenSpan{front.start, front.start});
    if (own) used = std::min(used + 1 + static_cast<size_t>(-change), text.spans.size());
  }
  text.become(std::move(out));
}

std::unique_ptr<Normaliser> make_normaliser(const Json& settings, const std::string& where) {
  if (settings.is_null()) return nullptr;
  const std::string type = settings.at("type").get<std::string>();
  if (type == "NFC") return std::make_unique<NormalForm>(false, true);
  if (type == "NFD") return std::make_unique<NormalForm>(false, false);
  if (type == "NFKC") return std::make_unique<NormalForm>(true, true);
  if (type == "NFKD") return std::make_unique<NormalForm>(true, false);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "BertNormalizer") return std::make_unique<Bert>(settings);
  if (type == "ClipText") return std::make_unique<ClipText>();
  if (type == "SentencePiece") return std::make_unique<SentencePiece>(settings, where);
  if (type == "Strip")
    return std::make_unique<Strip>(settings.value("strip_left", true), settings.value("strip_right", true));
  if (type == "Prepend")
    return std::make_unique<Prepend>(to_code_points(settings.at("prepend").get<std::string>(), where));
  if (type == "Precompiled")
    return std::make_unique<Precompiled>(
        CharacterMap::of_base64(settings.at("precompiled_charsmap").get<std::string>(), where));
  if (type == "Replace")
    return std::make_unique<Replace>(read_pattern(settings.at("pattern"), where),
                                     to_code_points(settings.at("content").get<std::string>(), where));
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normaliser>> parts;
    for (const Json& part : settings.at("normalizers")) {
      if (part.is_null()) fail(where, ": a normaliser within a sequence is null");
      parts.push_back(make_normaliser(part, where));
    }
    return std::make_unique<Sequence>(std::move(parts));
  }
  fail(where, ": the normaliser '", printable(type), "' is not known");
}

}  // namespace tessera::tokens
