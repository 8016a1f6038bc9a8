#include "core/printable_stream.h"

#include <string>

#include "core/control_characters.h"

namespace tessera {
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
