#include "tasks/language/packed_texts.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "io/files/file.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

class WindowTransform final : public data::Transform {
 public:
  explicit WindowTransform(int64_t length) : fields_{{"ids", DType::i32, {length + 1}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream&, std::span<const data::Slot> out) const override {
    const std::vector<int64_t>& ids = sample.annotation.classes;
    const int64_t places = fields_[0].shape[0];
    check(std::ssize(ids) >= 2 && std::ssize(ids) <= places, sample.name, ": a window of ", ids.size(),
          " tokens, must have 2 to ", places);
    auto* values = out[0].as<int32_t>();
    for (size_t i = 0; i < ids.size(); ++i) values[i] = static_cast<int32_t>(ids[i]);
    std::fill(values + ids.size(), values + places, static_cast<int32_t>(kNotLearned));
  }

 private:
  std::vector<data::Field> fields_;
};

}  // namespace

PackedTexts::PackedTexts(std::shared_ptr<const data::Source> texts, const Tokeniser& tokeniser,
                         int32_t separator, int64_t length)
    : texts_(std::move(texts)), length_(length), checksum_(checksum_of(as_bytes(tokeniser.definition()))) {
  std::vector<std::vector<int32_t>> documents(static_cast<size_t>(texts_->size()));
  std::vector<int64_t> bytes(documents.size());
  parallel_for(texts_->size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const data::RawSample sample = texts_->read(i);
      check(!sample.annotation.captions.empty(), sample.name, ": has no text");
      for (const std::string& words : sample.annotation.captions) {
        const std::vector<int32_t> ids = tokeniser.encode(words, /*special=*/false);
        auto& own = documents[static_cast<size_t>(i)];
        own.push_back(separator);
        own.insert(own.end(), ids.begin(), ids.end());
        bytes[static_cast<size_t>(i)] += std::ssize(words);
      }
    }
  });
  for (size_t i = 0; i < documents.size(); ++i) {
    ids_.insert(ids_.end(), documents[i].begin(), documents[i].end());
    bytes_ += bytes[i];
    documents[i] = {};
  }
  ids_.push_back(separator);
  check(bytes_ > 0, texts_->describe(), ": there is no text");
}

int64_t PackedTexts::size() const { return (tokens() - 1 + length_ - 1) / length_; }

data::RawSample PackedTexts::read(int64_t index) const {
  data::RawSample sample{.name = text("window ", index, " of ", texts_->describe())};
  const int64_t first = index * length_, last = std::min(first + length_ + 1, tokens());
  sample.annotation.classes.assign(ids_.begin() + first, ids_.begin() + last);
  return sample;
}

uint64_t PackedTexts::fingerprint() const {
  const std::string all = text(checksum_, " ", length_, " ", texts_->fingerprint());
  return std::stoull(checksum_of(as_bytes(all)), nullptr, 16);
}

std::string PackedTexts::describe() const {
  return text(texts_->describe(), ", ", counted(tokens(), "token"), " in ", counted(size(), "window"), " of ",
              length_);
}

std::shared_ptr<const PackedTexts> packed_texts(const std::shared_ptr<const data::Source>& texts,
                                                const Tokeniser& tokeniser, int32_t separator,
                                                int64_t length) {
  if (!texts) return nullptr;
  if (texts->size() > 0 && texts->read(0).annotation.captions.empty())
    fail_usage("task language needs texts, such as data.path = \"text:FOLDER\"; ", texts->describe(),
               " has none");
  return std::make_shared<PackedTexts>(texts, tokeniser, separator, length);
}

std::shared_ptr<const data::Transform> make_window_transform(int64_t length) {
  return std::make_shared<WindowTransform>(length);
}

}  // namespace tessera::tasks
