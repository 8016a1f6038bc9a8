#include "core/control_characters.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace tessera {

size_t utf8_length(std::string_view bytes, size_t i) {
  const auto lead = static_cast<unsigned char>(bytes[i]);
  const int extra = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
  if (extra < 0 || i + static_cast<size_t>(extra) >= bytes.size()) return 0;
  uint32_t code = extra == 0 ? lead : lead & (0x3Fu >> extra);
  for (int k = 1; k <= extra; ++k) {
    const auto next = static_cast<unsigned char>(bytes[i + static_cast<size_t>(k)]);
    if (next >> 6 != 2) return 0;
    code = code << 6 | (next & 0x3Fu);
  }
  static constexpr std::array<uint32_t, 4> smallest = {0, 0x80, 0x800, 0x10000};
  if (code < smallest[static_cast<size_t>(extra)] || code > 0x10FFFF) return 0;
  if (code >= 0xD800 && code <= 0xDFFF) return 0;
  return 1 + static_cast<size_t>(extra);
}

bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) ||
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
}

namespace {

// Inclusive ranges of code points, ascending: combining marks, joiners and variation selectors.
constexpr std::array<std::array<uint32_t, 2>, 8> kNoColumn = {{{0x300, 0x36F},
                                                               {0x1AB0, 0x1AFF},
                                                               {0x1DC0, 0x1DFF},
                                                               {0x200B, 0x200F},
                                                               {0x20D0, 0x20FF},
                                                               {0xFE00, 0xFE0F},
                                                               {0xFE20, 0xFE2F},
                                                               {0x1F3FB, 0x1F3FF}}};
// East Asian wide and fullwidth characters, and emoji (Unicode 15, annex 11).
constexpr std::array<std::array<uint32_t, 2>, 13> kTwoColumns = {{{0x1100, 0x115F},
                                                                  {0x2E80, 0x303E},
                                                                  {0x3041, 0xA4CF},
                                                                  {0xA960, 0xA97F},
                                                                  {0xAC00, 0xD7A3},
                                                                  {0xF900, 0xFAFF},
                                                                  {0xFE30, 0xFE6F},
                                                                  {0xFF01, 0xFF60},
                                                                  {0xFFE0, 0xFFE6},
                                                                  {0x1F300, 0x1F64F},
                                                                  {0x1F680, 0x1F6FF},
                                                                  {0x1F900, 0x1FAFF},
                                                                  {0x20000, 0x3FFFD}}};

bool within(const auto& ranges, uint32_t code) {
  return std::ranges::any_of(ranges, [&](const auto& range) { return code >= range[0] && code <= range[1]; });
}

uint32_t code_point(std::string_view character) {
  uint32_t code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x7Fu >> character.size();
  for (const char next : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
  return code;
}

}  // namespace

size_t display_width(std::string_view content) {
  size_t columns = 0;
  for (size_t i = 0; i < content.size();) {
    const size_t length = std::max<size_t>(utf8_length(content, i), 1);
    const uint32_t code = code_point(content.substr(i, length));
    columns += within(kNoColumn, code) ? 0 : within(kTwoColumns, code) ? 2 : 1;
    i += length;
  }
  return columns;
}

std::string padded(std::string_view content, size_t width) {
  const size_t columns = display_width(content);
  return std::string(content) + std::string(width > columns ? width - columns : 0, ' ');
}

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

void append_escaped(std::string& out, std::string_view bytes) {
  static constexpr char hex[] = "0123456789abcdef";
  for (const char one : bytes) {
    const auto c = static_cast<unsigned char>(one);
    out += {'\\', 'x', hex[c >> 4], hex[c & 15]};
  }
}

std::string without_controls(std::string_view content) {
  std::string out;
  out.reserve(content.size());
  for (size_t i = 0; i < content.size();) {
    const size_t length = utf8_length(content, i);
    const std::string_view character = content.substr(i, std::max<size_t>(length, 1));
    // 8-bit terminals execute a single C1 byte.
    const bool lone = length == 0 && static_cast<unsigned char>(character[0]) < 0xA0;
    if (character != "\n" && character != "\t" && (lone || (length > 0 && is_control(character))))
      append_escaped(out, character);
    else
      out += character;
    i += character.size();
  }
  return out;
}

size_t unfinished_utf8(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const auto c = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if (c >> 6 == 2) continue;
    const size_t wanted = c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 1;
    return wanted > back ? back : 0;
  }
  return 0;
}

namespace {

class Filter final : public std::streambuf {
 public:
  explicit Filter(std::streambuf* target) : target_(target) {}
  std::streambuf* target() const { return target_; }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }

  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    held_.append(bytes, static_cast<size_t>(count));
    const size_t ready = held_.size() - unfinished_utf8(held_);
    const std::string out = without_controls(std::string_view(held_).substr(0, ready));
    held_.erase(0, ready);
    return put(out) ? count : 0;
  }

  int sync() override {
    const std::string out = without_controls(held_);
    held_.clear();
    return put(out) ? target_->pubsync() : -1;
  }

 private:
  bool put(const std::string& out) {
    const auto size = static_cast<std::streamsize>(out.size());
    return target_->sputn(out.data(), size) == size;
  }

  std::streambuf* target_;
  std::string held_;  // the first bytes of an incomplete character
};

}  // namespace

PrintableStream::PrintableStream(std::ostream& stream)
    : stream_(stream),
      filter_(std::make_unique<Filter>(stream.rdbuf())),
      before_(stream.rdbuf(filter_.get())) {}

PrintableStream::~PrintableStream() {
  filter_->pubsync();
  stream_.rdbuf(before_);
}

std::streambuf* unfiltered(std::ostream& stream) {
  const auto* filter = dynamic_cast<const Filter*>(stream.rdbuf());
  return filter ? filter->target() : stream.rdbuf();
}

}  // namespace tessera
