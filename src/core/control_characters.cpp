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
    // 8-bit terminals execute a lone C1 byte.
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
