#include "tasks/language/conversation_input.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::tasks {
namespace {

constexpr int kMostTries = 16;

// Fields for `count` images, from a transform for single images.
std::vector<data::Field> fields_for(const data::Transform& image, int64_t count, int64_t length) {
  data::Field pixels = image.fields().at(0);
  if (count > 1) pixels.shape.insert(pixels.shape.begin(), count);
  return {pixels,
          {"ids", DType::i32, {length}},
          {"labels", DType::i32, {length}},
          {"type", DType::i32, {}},
          {"cut", DType::i32, {}}};
}

// Shuffles the rounds of a conversation, each a question with its answer. Removes the image word from its own
// line at the beginning or end of a question. Leaves the turns unchanged if it occurs elsewhere, or more than
// once.
void draw_order(std::vector<std::string>& turns, RandomStream& random) {
  const std::string line(kImageWord);
  std::vector<std::string> bare = turns;
  int64_t lines = 0;
  for (size_t i = 0; i < bare.size(); i += 2) {
    std::string& question = bare[i];
    if (question.starts_with(line + "\n"))
      ++lines, question = question.substr(line.size() + 1);
    else if (question.ends_with("\n" + line))
      ++lines, question.resize(question.size() - line.size() - 1);
  }
  const bool elsewhere = std::any_of(bare.begin(), bare.end(), [](const std::string& turn) {
    return turn.find(kImageWord) != std::string::npos;
  });
  if (lines > 1 || elsewhere) return;
  const auto rounds = std::ssize(bare) / 2;
  const std::vector<int64_t> order = random.permutation(rounds);
  for (int64_t i = 0; i < rounds; ++i)
    for (int64_t side = 0; side < 2; ++side)
      turns[static_cast<size_t>(2 * i + side)] =
          bare[static_cast<size_t>(2 * order[static_cast<size_t>(i)] + side)];
  if (std::ssize(bare) > 2 * rounds) turns.back() = bare.back();  // a question without an answer
}

// If no turn contains the image word, the image comes before the first question.
TrainingText training_text_of(const data::RawSample& sample, const std::vector<std::string>& texts,
                              const ConversationInput& input) {
  std::vector<Turn> turns;
  for (const std::string& one : texts) turns.push_back({turns.size() % 2 == 0, one});
  const bool images = !sample.without_image;
  if (images && !turns.empty() && turns[0].text.find(kImageWord) == std::string::npos)
    turns[0].text = std::string(kImageWord) + "\n" + turns[0].text;
  return training_text(input.tokeniser, input.chat, turns, images);
}

class ConversationTransform final : public data::Transform {
 public:
  ConversationTransform(const ConversationInput& input, std::shared_ptr<const data::Transform> image)
      : input_(input),
        image_(std::move(image)),
        fields_(fields_for(*image_, 1 + input.shots, input.length)) {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream& random,
             std::span<const data::Slot> out) const override {
    const int64_t pixels = image_->fields()[0].bytes();
    Words words{out[1].as<int32_t>(), out[2].as<int32_t>()};
    data::Slot image = out[0];
    int64_t images = 0;
    const auto put_image = [&](const data::RawSample& from) {
      if (from.without_image) return;
      image_->apply(from, random, std::span(&image, 1));
      image.data += pixels, ++images;
    };
    // A validation sample always has the same examples, whatever the run's seed.
    const std::vector<int64_t>& classes = sample.annotation.classes;
    const std::string asked = classes.size() > 1 ? std::to_string(classes[1])  // for one of several choices
                                                 : join(sample.annotation.captions, "\n");
    const uint64_t key = std::stoull(checksum_of(as_bytes(sample.name + asked)), nullptr, 16);
    RandomStream fixed(key, "examples");
    for (int64_t shot = 0; shot < input_.shots; ++shot) {
      const data::RawSample example = draw(sample, input_.training ? random : fixed);
      put_image(example);
      write(example, random, input_.learns_examples, words);
    }
    put_image(sample);
    std::fill(image.data, out[0].data + (1 + input_.shots) * pixels, std::byte{0});
    write(sample, random, true, words);
    const int64_t places =
        std::count(words.ids, words.ids + words.used, static_cast<int32_t>(input_.image_token));
    check(places == images * input_.per_image, sample.name, ": task.length = ", input_.length,
          " has no place for the ", images * input_.per_image, " tokens of its ",
          input_.shots > 0 ? "images" : "image");
    check(!input_.training || std::any_of(words.labels, words.labels + words.used,
                                          [](int32_t label) { return label != kNotLearned; }),
          sample.name, ": task.length = ", input_.length, " leaves no answer of its conversation of ",
          words.used + words.cut, " tokens");
    std::fill(words.ids + words.used, words.ids + input_.length, 0);
    std::fill(words.labels + words.used, words.labels + input_.length, static_cast<int32_t>(kNotLearned));
    *out[3].as<int32_t>() =
        sample.annotation.classes.empty() ? 0 : static_cast<int32_t>(sample.annotation.classes[0]);
    *out[4].as<int32_t>() = static_cast<int32_t>(words.cut);
  }

 private:
  struct Words {
    int32_t *ids, *labels;
    int64_t used = 0, cut = 0;
  };

  // Draws another conversation than the sample's own.
  data::RawSample draw(const data::RawSample& sample, RandomStream& random) const {
    check(input_.examples != nullptr,
          "examples need conversations that they are drawn from");  // a plan draws none
    for (int i = 0; i < kMostTries; ++i) {
      data::RawSample example = input_.examples->read(
          static_cast<int64_t>(random.below(static_cast<uint64_t>(input_.examples->size()))));
      if (example.name != sample.name || example.annotation.captions != sample.annotation.captions)
        return example;
    }
    fail(sample.name, ": there is no other conversation that could be an example of ",
         input_.examples->describe());
  }

  void write(const data::RawSample& sample, RandomStream& random, bool learned, Words& words) const {
    std::vector<std::string> texts = sample.annotation.captions;
    if (input_.training && input_.order == QuestionOrder::drawn) draw_order(texts, random);
    const TrainingText text = training_text_of(sample, texts, input_);
    const auto images = std::count(text.ids.begin(), text.ids.end(), kImageId);
    check(images == (sample.without_image ? 0 : 1), sample.name, ": its conversation holds '<image>' ",
          images, " times, must be once");
    for (size_t i = 0; i < text.ids.size(); ++i) {
      const bool image = text.ids[i] == kImageId;
      for (int64_t copy = 0; copy < (image ? input_.per_image : 1); ++copy) {
        if (words.used == input_.length) {
          ++words.cut;
          continue;
        }
        words.ids[words.used] = static_cast<int32_t>(image ? input_.image_token : text.ids[i]);
        words.labels[words.used++] = static_cast<int32_t>(image || !learned ? kNotLearned : text.labels[i]);
      }
    }
  }

  ConversationInput input_;
  std::shared_ptr<const data::Transform> image_;
  std::vector<data::Field> fields_;
};

class DocumentTransform final : public data::Transform {
 public:
  DocumentTransform(const DocumentInput& input, std::shared_ptr<const data::Transform> image)
      : input_(input), image_(std::move(image)) {
    data::Field pixels = image_->fields().at(0);
    pixels.shape.insert(pixels.shape.begin(), input.images);
    fields_ = {pixels, {"ids", DType::i32, {input.length}}, {"labels", DType::i32, {input.length}}};
  }
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream& random,
             std::span<const data::Slot> out) const override {
    const Words words = words_of(sample.annotation.captions);
    const Window window = window_of(words, random);
    auto *ids = out[1].as<int32_t>(), *labels = out[2].as<int32_t>();
    bool seen = false;
    for (int64_t i = 0; i < input_.length; ++i) {
      const bool inside = window.begin + i < window.end;
      const int64_t id = inside ? words.ids[static_cast<size_t>(window.begin + i)] : 0;
      const bool image = inside && id == input_.image_token;
      seen = seen || image;
      ids[i] = static_cast<int32_t>(id);
      labels[i] = static_cast<int32_t>(inside && seen && !image ? id : kNotLearned);
    }
    const int64_t pixels = image_->fields()[0].bytes(), index = sample.annotation.classes.at(0);
    data::Slot image = out[0];
    for (int64_t k = window.first; k < window.last; ++k, image.data += pixels)
      image_->apply(input_.documents->image(index, k), random, std::span(&image, 1));
    std::fill(image.data, out[0].data + input_.images * pixels, std::byte{0});
  }

 private:
  struct Words {
    std::vector<int64_t> ids, images;  // positions of the images among the ids
  };
  struct Window {
    int64_t begin = 0, end = 0;   // ids
    int64_t first = 0, last = 0;  // images
  };

  Words words_of(const std::vector<std::string>& texts) const {
    Words words;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0) {
        words.images.push_back(std::ssize(words.ids));
        words.ids.push_back(input_.image_token);
      }
      if (texts[i].empty()) continue;
      const std::vector<int32_t> ids = input_.tokeniser.encode(texts[i], /*special=*/false);
      words.ids.insert(words.ids.end(), ids.begin(), ids.end());
      words.ids.push_back(input_.end_of_chunk);
    }
    return words;
  }

  Window window_of(const Words& words, RandomStream& random) const {
    const int64_t tokens = std::ssize(words.ids), images = std::ssize(words.images);
    Window window{0, tokens, 0, images};
    if (tokens <= input_.length && images <= input_.images) return window;
    if (input_.training) window.first = static_cast<int64_t>(random.below(static_cast<uint64_t>(images)));
    window.begin = words.images[static_cast<size_t>(window.first)];
    window.last = window.first + input_.images;
    window.end = std::min(tokens, window.begin + input_.length);
    if (window.last < images)
      window.end = std::min(window.end, words.images[static_cast<size_t>(window.last)]);
    window.last =
        std::lower_bound(words.images.begin(), words.images.end(), window.end) - words.images.begin();
    return window;
  }

  DocumentInput input_;
  std::shared_ptr<const data::Transform> image_;
  std::vector<data::Field> fields_;
};

}  // namespace

std::vector<LongText> long_conversation(const data::RawSample& sample, const ConversationInput& input) {
  const std::vector<std::string>& texts = sample.annotation.captions;
  const TrainingText text = training_text_of(sample, texts, input);
  const auto images = std::count(text.ids.begin(), text.ids.end(), kImageId);
  const int64_t tokens = std::ssize(text.ids) + images * (input.per_image - 1);
  if (tokens <= input.length) return {};
  return {{join(texts, " "), tokens - input.length}};
}

std::shared_ptr<const data::Transform> make_document_transform(const DocumentInput& input,
                                                               std::shared_ptr<const data::Transform> image) {
  return std::make_shared<DocumentTransform>(input, std::move(image));
}

std::shared_ptr<const data::Transform> make_conversation_transform(
    const ConversationInput& input, std::shared_ptr<const data::Transform> image) {
  return std::make_shared<ConversationTransform>(input, std::move(image));
}

}  // namespace tessera::tasks
