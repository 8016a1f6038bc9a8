#include "text/tokeniser.h"
#include "text/unicode.h"

namespace tessera {

StreamDecoder::StreamDecoder(Tokeniser tokeniser, bool skip_special)
    : tokeniser_(std::move(tokeniser)), skip_special_(skip_special) {}

std::string StreamDecoder::push(int32_t id) {
  window_.push_back(id);
  const std::string all = tokeniser_.decode(window_, skip_special_);
  std::string ending;
  tokens::append_utf8(0xFFFD, ending);
  // If a character still lacks bytes after a few more tokens, it is treated as invalid.
  constexpr size_t kLongestCharacter = 8;
  if (all.size() <= given_ || (all.ends_with(ending) && window_.size() < held_ + kLongestCharacter))
    return "";
  std::string fresh = all.substr(given_);
  given_ = all.size();
  held_ = window_.size();
  // Decoders depend on the start of the text and on neighbouring tokens, so some tokens are kept as context.
  constexpr size_t kLongWindow = 64, kContext = 16;
  if (window_.size() > kLongWindow) {
    window_.erase(window_.begin() + 1, window_.end() - kContext);
    given_ = tokeniser_.decode(window_, skip_special_).size();
    held_ = window_.size();
  }
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string all = tokeniser_.decode(window_, skip_special_);
  std::string rest = all.size() > given_ ? all.substr(given_) : "";
  window_.clear();
  given_ = held_ = 0;
  return rest;
}

}  // namespace tessera
