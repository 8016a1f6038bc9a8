#include <array>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "text/pattern.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::tokens {
namespace {

using Json = nlohmann::json;
using Parts = std::vector<std::string>;

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string joined(const Parts& parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// Returns the byte that a token such as "<0x41>" names.
std::optional<char> named_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

class ByteLevel : public Decoder {
 public:
  Parts apply(Parts tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      std::string own;
      bool all = true;
      for (const char32_t c : to_code_points_lossy(token)) {
        const int byte = character_byte(c);
        all = all && byte >= 0;
        own += static_cast<char>(byte);
      }
      bytes += all ? own : token;
    }
    return {to_utf8(to_code_points_lossy(bytes))};
  }
};

// Decodes runs of byte tokens as UTF-8; each byte of an invalid run becomes U+FFFD.
class ByteFallback : public Decoder {
 public:
  Parts apply(Parts tokens) const override {
    Parts out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), kReplacement);
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = named_byte(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    return out;
  }
};

size_t size_of(const Parts& parts) {
  size_t size = 0;
  for (const std::string& part : parts) size += part.size();
  return size;
}

// The bytes that a step may make of a given number.
size_t most_of(size_t bytes) { return (size_t{1} << 20) + 64 * bytes; }

[[noreturn]] void fail_too_long(const std::string& where) {
  fail(where,
       ": its decoder makes these tokens too long: 2^20 bytes and 64 for each of theirs are the limit");
}

class Fuse : public Decoder {
 public:
  Parts apply(Parts tokens) const override { return {joined(tokens)}; }
};

class Replace : public Decoder {
 public:
  Replace(const Json& settings, const std::string& where)
      : pattern_(read_pattern(settings.at("pattern"), where)),
        content_(settings.at("content").get<std::string>()),
        where_(where) {}
  Parts apply(Parts tokens) const override {
    const size_t size = size_of(tokens);
    uint64_t steps = Pattern::steps_for(size);
    size_t left = most_of(size);
    for (std::string& token : tokens) {
      const std::u32string chars = to_code_points_lossy(token);
      std::string out;
      size_t done = 0;
      while (const auto match = pattern_.find(chars, done, steps)) {
        if (left < content_.size()) fail_too_long(where_);
        left -= content_.size();
        out += to_utf8(std::u32string_view(chars).substr(done, match->start - done)) + content_;
        done = match->end;
      }
      if (done > 0) token = out + to_utf8(std::u32string_view(chars).substr(done));
    }
    return tokens;
  }

 private:
  Pattern pattern_;
  std::string content_, where_;
};

class Strip : public Decoder {
 public:
  Strip(const Json& settings, const std::string& where)
      : content_(settings.value("content", " ")),
        start_(json_integer(settings.value("start", Json(0)), where, "the start of a Strip")),
        stop_(json_integer(settings.value("stop", Json(0)), where, "the stop of a Strip")) {}
  Parts apply(Parts tokens) const override {
    if (content_.empty()) return tokens;
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i)
        token.resize(token.size() - content_.size());
    }
    return tokens;
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Metaspace : public Decoder {
 public:
  explicit Metaspace(const Json& settings)
      : mark_(settings.value("replacement", "\u2581")),
        drops_first_(
            settings.value("prepend_scheme", settings.value("add_prefix_space", true) ? "always" : "never") !=
            "never") {}
  Parts apply(Parts tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(std::move(tokens[i]), mark_, i == 0 && drops_first_ ? "" : " ");
    return tokens;
  }

 private:
  std::string mark_;
  bool drops_first_;
};

class WordPiece : public Decoder {
 public:
  explicit WordPiece(const Json& settings)
      : prefix_(settings.value("prefix", "##")), cleanup_(settings.value("cleanup", true)) {}
  Parts apply(Parts tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
      if (!cleanup_) continue;
      static constexpr std::array<std::array<const char*, 2>, 11> kClean = {{{" .", "."},
                                                                             {" ?", "?"},
                                                                             {" !", "!"},
                                                                             {" ,", ","},
                                                                             {" ' ", "'"},
                                                                             {" n't", "n't"},
                                                                             {" 'm", "'m"},
                                                                             {" do not", " don't"},
                                                                             {" 's", "'s"},
                                                                             {" 've", "'ve"},
                                                                             {" 're", "'re"}}};
      for (const auto& [what, by] : kClean) token = replaced(std::move(token), what, by);
    }
    return tokens;
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

// Replaces the end of a word by a blank, except the last one.
class WordEnds : public Decoder {
 public:
  explicit WordEnds(const Json& settings) : suffix_(settings.value("suffix", "</w>")) {}
  Parts apply(Parts tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(std::move(tokens[i]), suffix_, i + 1 < tokens.size() ? " " : "");
    return tokens;
  }

 private:
  std::string suffix_;
};

class SentencePiece : public Decoder {
 public:
  explicit SentencePiece(const Json& settings)
      : unknown_(settings.value("unknown", "<unk>")),
        surface_(settings.value("unknown_surface", " \u2047 ")),
        strip_prefix_(settings.value("strip_prefix", true)),
        strip_all_(settings.value("strip_all", false)) {}

  Parts apply(Parts tokens) const override {
    Parts out;
    std::string bytes;
    bool at_front = true, seen = false, any = false;
    const auto flush = [&] {
      if (bytes.empty()) return;
      out.push_back(to_utf8(to_code_points_by_byte(bytes)));
      any = true;
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = named_byte(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      if (seen || any) at_front = false;
      seen = false;
      if (token == unknown_) {
        out.push_back(surface_);
      } else {
        if (at_front && strip_prefix_ && token.starts_with(kMark)) {
          token.erase(0, kMark.size());
          seen = !strip_all_;
        }
        out.push_back(replaced(std::move(token), kMark, " "));
      }
      any = any || !out.back().empty();
    }
    flush();
    return out;
  }

 private:
  static constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

  // Each byte outside a valid character becomes one U+FFFD.
  static std::u32string to_code_points_by_byte(const std::string& bytes) {
    std::u32string out;
    for (size_t at = 0; at < bytes.size();) {
      size_t length = 1;
      while (length <= 4 && at + length <= bytes.size() && !is_utf8(bytes.substr(at, length))) ++length;
      const bool character = length <= 4 && at + length <= bytes.size();
      out += character ? to_code_points_lossy(bytes.substr(at, length)) : std::u32string(1, 0xFFFD);
      at += character ? length : 1;
    }
    return out;
  }

  std::string unknown_, surface_;
  bool strip_prefix_, strip_all_;
};

class Sequence : public Decoder {
 public:
  Sequence(std::vector<std::unique_ptr<Decoder>> parts, std::string where)
      : where_(std::move(where)), parts_(std::move(parts)) {}
  Parts apply(Parts tokens) const override {
    const size_t most = most_of(size_of(tokens));
    for (const auto& part : parts_) {
      tokens = part->apply(std::move(tokens));
      if (size_of(tokens) > most) fail_too_long(where_);
    }
    return tokens;
  }

 private:
  std::string where_;
  std::vector<std::unique_ptr<Decoder>> parts_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& settings, const std::string& where) {
  if (settings.is_null()) return nullptr;
  const std::string type = settings.at("type").get<std::string>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") return std::make_unique<Replace>(settings, where);
  if (type == "Strip") return std::make_unique<Strip>(settings, where);
  if (type == "Metaspace") return std::make_unique<Metaspace>(settings);
  if (type == "WordPiece") return std::make_unique<WordPiece>(settings);
  if (type == "BPEDecoder") return std::make_unique<WordEnds>(settings);
  if (type == "SentencePiece") return std::make_unique<SentencePiece>(settings);
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> parts;
    for (const Json& part : settings.at("decoders")) {
      if (part.is_null()) fail(where, ": a decoder within a sequence is null");
      parts.push_back(make_decoder(part, where));
    }
    return std::make_unique<Sequence>(std::move(parts), where);
  }
  fail(where, ": the decoder '", printable(type), "' is not known");
}

}  // namespace tessera::tokens
