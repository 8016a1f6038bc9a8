#include "data/sources/conversations.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "data/base/class_names.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::data {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{1} << 31;

constexpr std::string_view kImageWord = "<image>";

std::string without_extension(const std::string& name) { return name.substr(0, name.rfind('.')); }

std::string word(const Json& record, const char* key, const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_string()) fail(where, " has no '", key, "'");
  return found->get<std::string>();
}

// Returns the text of a turn. A template's parts are joined, and an image among them is the word for it.
std::string turn_text(const Json& turn, const std::string& where) {
  const auto content = turn.find("content");
  if (content == turn.end()) return word(turn, "value", where);
  if (!content->is_array()) return word(turn, "content", where);
  std::string text;
  for (const Json& part : *content) {
    const Json kind = part.is_object() ? part.value("type", Json()) : Json();
    if (kind == "image" || kind == "image_url")
      text += text.empty() ? "<image>\n" : "\n<image>";
    else if (kind == "text")
      text += word(part, "text", where);
    else
      fail(where, ": a part of 'content' has the type ", printable(kind.dump(), 40),
           ", must be text or image");
  }
  return text;
}

// Returns the image that a part of the turns names, as {"image": "a.jpg"} or {"image_url": {"url": "a.jpg"}}; "" without one.
std::string image_of_parts(const Json& record, const std::string& where) {
  std::vector<std::string> images;
  for (const Json& turn : record.value("messages", Json::array())) {
    const Json parts = turn.is_object() ? turn.value("content", Json()) : Json();
    for (const Json& part : parts.is_array() ? parts : Json::array()) {
      const Json link = part.is_object() ? part.value("image_url", Json()) : Json();
      const Json name = link.is_object()   ? link.value("url", Json())
                        : part.is_object() ? part.value("image", link)
                                           : link;
      if (name.is_string()) images.push_back(name.get<std::string>());
    }
  }
  if (images.size() > 1) fail(where, " has ", images.size(), " images, must have one");
  return images.empty() ? "" : images[0];
}

// Reads "answers" of a question, texts or objects with one; or its only "answer".
std::vector<std::string> answers_of(const Json& record, const std::string& where) {
  const auto answers = record.find("answers");
  if (answers == record.end() && record.contains("answer")) return {word(record, "answer", where)};
  if (answers == record.end() || !answers->is_array() || answers->empty())
    fail(where, " has a question without 'answers'");
  std::vector<std::string> all;
  for (const Json& one : *answers) {
    if (one.is_object())
      all.push_back(word(one, "answer", where));
    else if (one.is_string())
      all.push_back(one.get<std::string>());
    else
      fail(where, ": 'answers' holds ", one.type_name(), ", must be texts");
  }
  return all;
}

// Returns the index of the right choice.
int64_t right_of(const Json& record, const std::string& where) {
  const auto answer = record.find("answer");
  const auto count = std::ssize(record.at("choices"));
  if (answer == record.end() || !answer->is_number_integer())
    fail(where, " has choices without the number of the right one, 'answer'");
  const auto right = answer->get<int64_t>();
  if (right < 0 || right >= count)
    fail(where, ": 'answer' is ", right, ", must be 0 to ", count - 1, ", the number of a choice");
  return right;
}

// Returns the question with its choices in LLaVA 1.5's format, and the letter of the right choice.
std::vector<std::string> choice_turns(const Json& record, const std::string& where) {
  const Json& choices = record.at("choices");
  constexpr size_t kMostChoices = 26;
  if (!choices.is_array() || choices.size() < 2 || choices.size() > kMostChoices)
    fail(where, ": 'choices' must be 2 to ", kMostChoices, " texts");
  std::string question = word(record, "question", where);
  if (const std::string hint = record.value("hint", ""); !hint.empty()) question = hint + "\n" + question;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].is_string()) fail(where, ": 'choices' holds ", choices[i].type_name(), ", must be texts");
    question += "\n" + choice_letter(i) + ". " + choices[i].get<std::string>();
  }
  question += "\nAnswer with the option's letter from the given choices directly.";
  return {question, choice_letter(static_cast<size_t>(right_of(record, where)))};
}

// Returns the number at the end of a name, without its extension, as in COCO ("COCO_val2014_000000458752"),
// or -1.
int64_t number_of(std::string_view name) {
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9')
    ++digits;
  return parse_int(name.substr(name.size() - digits)).value_or(-1);
}

int64_t integer(const Json& record, const char* key, const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number_integer()) fail(where, " has no whole number '", key, "'");
  return found->get<int64_t>();
}

// Returns the array at `key` of a file that contains one object.
const Json& entries_of(const Json& tree, const char* key, const std::string& path) {
  const auto found = tree.is_object() ? tree.find(key) : tree.end();
  if (!tree.is_object() || found == tree.end() || !found->is_array())
    fail(path, " must be an object with an array '", key, "', as VQA's files are");
  return *found;
}

// Returns the last two parts of a path, if it has them.
std::string with_folder(const std::string& name) {
  const size_t last = name.find_last_of("/:! ");
  if (last == std::string::npos || last == 0) return name;
  return conversation_image(name.substr(0, last)) + "/" + name.substr(last + 1);
}

// Returns the name of a record's image, "" if it has none. A list must have one.
std::string image_of(const Json& record, const std::string& where) {
  const auto one = record.find("image"), named = one != record.end() ? one : record.find("images");
  if (named == record.end() || named->is_null()) return image_of_parts(record, where);
  if (named->is_array() && named->size() > 1)
    fail(where, ": 'image' is a list of ", named->size(), ", must be one image");
  const Json& name = named->is_array() && !named->empty() ? named->front() : *named;
  if (name.is_array()) return "";
  if (!name.is_string()) fail(where, ": 'image' is ", name.type_name(), ", must be text");
  return name.get<std::string>();
}

}  // namespace

// Images by name without extension, both with and without their folder.
class ImagePlaces {
 public:
  explicit ImagePlaces(const Source& images) : images_(images) {
    for (int64_t i = 0; i < images.size(); ++i) {
      const std::string name = without_extension(images.read(i).name);
      by_number_.try_emplace(number_of(name), i);
      for (auto& [places, key] :
           {std::pair(&by_name_, conversation_image(name)), {&by_folder_, with_folder(name)}})
        if (const auto [found, is_new] = places->try_emplace(key, i); !is_new) found->second = kSeveral;
    }
  }
  // Returns -1 for an unknown name. Throws an error that names `where` if several images share the name.
  int64_t find(const std::string& image, const std::string& where) const {
    const std::string name = without_extension(image);
    if (const auto found = by_folder_.find(with_folder(name));
        found != by_folder_.end() && found->second >= 0)
      return found->second;
    const auto found = by_name_.find(conversation_image(name));
    if (found == by_name_.end()) return -1;
    if (found->second == kSeveral)
      fail(where, ": the image '", printable(image), "' may be any of several of that name among ",
           images_.describe());
    return found->second;
  }
  // Returns the image with a name ending in that number, or -1.
  int64_t numbered(int64_t number) const {
    const auto found = by_number_.find(number);
    return found == by_number_.end() || number < 0 ? -1 : found->second;
  }

 private:
  static constexpr int64_t kSeveral = -2;
  const Source& images_;
  std::map<std::string, int64_t> by_name_, by_folder_;
  std::map<int64_t, int64_t> by_number_;
};

std::string choice_letter(size_t choice) { return {static_cast<char>('A' + choice)}; }

const ImageQuestions* image_questions(const Source& source) {
  const auto* asks = dynamic_cast<const ImageQuestions*>(&source);
  return asks && asks->questions_per_image() > 0 ? asks : nullptr;
}

std::string conversation_image(const std::string& sample_name) {
  const size_t at = sample_name.find_last_of("/:! ");
  return at == std::string::npos ? sample_name : sample_name.substr(at + 1);
}

std::vector<std::string> conversation_turns(const Json& record, const std::string& where) {
  std::vector<std::string> turns;
  if (record.contains("question")) {
    if (record.contains("choices")) return choice_turns(record, where);
    return {word(record, "question", where), answers_of(record, where)[0]};
  }
  // LLaVA's keys and roles, or those of chat templates.
  const auto own = record.find("conversations"), given = own != record.end() ? own : record.find("messages");
  if (given == record.end() || !given->is_array())
    fail(where, " has neither 'conversations' nor a 'question'");
  for (const Json& turn : *given) {
    if (!turn.is_object()) fail(where, ": a turn is no object");
    const std::string role = word(turn, turn.contains("role") ? "role" : "from", where);
    const bool human = role == "human" || role == "user";
    if (&turn == &given->front() && !human && given->size() > 1) continue;
    if (human != (turns.size() % 2 == 0))
      fail(where, ": turn ", turns.size() + 1, " is from '", printable(role),
           "', human and gpt must alternate");
    turns.push_back(turn_text(turn, where));
  }
  if (turns.size() < 2 || turns.size() % 2 != 0) fail(where, " has ", turns.size(), " turns, must be pairs");
  return turns;
}

Conversations::Conversations(const std::string& path, std::shared_ptr<const Source> images)
    : path_(path), images_(std::move(images)) {
  const ImagePlaces places(*images_);
  Kinds kinds;
  const size_t plus = file_exists(path) ? std::string::npos : path.find('+');
  const std::string file = path.substr(0, plus);
  const std::string content = read_list_text(file, kMostBytes);
  checksum_ = checksum_of(as_bytes(content));
  if (plus != std::string::npos)
    add_vqa(content, file, path.substr(plus + 1), places, kinds);
  else if (lower(path).ends_with(".json"))
    add_tree(parse_json(content, path, {kMostBytes, 16, int64_t{1} << 20}), places, kinds);
  else
    add_lines(content, places, kinds);
  if (without_image_ > 0 && without_image_ == std::ssize(records_))
    fail(path, ": none of its ", without_image_, " conversations has an 'image'");
  check(!records_.empty(), path, " holds no conversations",
        left_out_ > 0 ? text(" about ", images_->describe()) : "");
  const std::set<std::string> distinct(kinds.begin(), kinds.end());
  types_.assign(distinct.begin(), distinct.end());
  for (size_t i = 0; i < records_.size(); ++i)
    records_[i].type = std::lower_bound(types_.begin(), types_.end(), kinds[i]) - types_.begin();
}

void Conversations::add(const Json& record, int64_t place, const std::string& where, Kinds& kinds) {
  Record made{.where = where, .turns = conversation_turns(record, where), .image = place};
  if (record.contains("choices") && record.contains("question")) {
    made.choices = std::ssize(record.at("choices")), made.right = right_of(record, where);
    has_choices_ = true;
  } else if (record.contains("question")) {
    made.answers = answers_of(record, where);
    has_annotators_ = has_annotators_ || made.answers.size() > 1;
  }
  without_image_ += place < 0;
  records_.push_back(std::move(made));
  kinds.push_back(record.value("answer_type", ""));
}

void Conversations::add_named(const Json& record, const ImagePlaces& places, const std::string& where,
                              Kinds& kinds) {
  check(record.is_object(), where, " is no JSON object");
  const std::string image = image_of(record, where);
  if (image.empty()) return add(record, -1, where, kinds);
  const int64_t place = places.find(image, where);
  if (place < 0) fail(where, ": the image '", printable(image), "' is not among ", images_->describe());
  add(record, place, where, kinds);
}

void Conversations::add_lines(const std::string& content, const ImagePlaces& places, Kinds& kinds) {
  int64_t number = 0;
  for (const std::string& line : split(content, '\n')) {
    const std::string where = text(path_, " line ", ++number);
    if (!trim(line).empty())
      add_named(parse_json(line, where, JsonLimits{kMostBytes, 16, 4096}), places, where, kinds);
  }
}

void Conversations::add_tree(const Json& tree, const ImagePlaces& places, Kinds& kinds) {
  check(tree.is_array() || tree.is_object(), path_, " must be an array of conversations");
  if (tree.is_object() && tree.contains("questions"))
    fail(path_, " holds VQA's questions: append the file of their answers, ", path_, "+ANNOTATIONS");
  for (size_t i = 0; tree.is_array() && i < tree.size(); ++i)
    add_named(tree[i], places, text(path_, " entry ", i + 1), kinds);
  if (!tree.is_object()) return;
  for (const auto& [number, record] : tree.items()) {
    const std::string where = text(path_, " entry '", printable(number, 40), "'");
    check(record.is_object(), where, " is no JSON object");
    const auto named = record.find("image");
    const std::string image =
        named != record.end() && named->is_string() ? number + "/" + named->get<std::string>() : "";
    const int64_t place = image.empty() ? -1 : places.find(image, where);
    place < 0 ? static_cast<void>(++left_out_) : add(record, place, where, kinds);
  }
}

void Conversations::add_vqa(const std::string& questions, const std::string& questions_file,
                            const std::string& answers_file, const ImagePlaces& places, Kinds& kinds) {
  const JsonLimits limits{kMostBytes, 16, 4096};
  const std::string answers = read_text(answers_file, kMostBytes);
  checksum_ = checksum_of(as_bytes(text(checksum_, checksum_of(as_bytes(answers)))));
  const Json answered = parse_json(answers, answers_file, limits);
  std::map<int64_t, const Json*> by_question;
  for (const Json& one : entries_of(answered, "annotations", answers_file)) {
    check(one.is_object(), answers_file, ": an annotation is no object");
    const int64_t number = integer(one, "question_id", answers_file);
    check(by_question.try_emplace(number, &one).second, answers_file, ": question ", number, " occurs twice");
  }
  const Json asked = parse_json(questions, questions_file, limits);
  for (const Json& one : entries_of(asked, "questions", questions_file)) {
    check(one.is_object(), questions_file, ": a question is no object");
    const int64_t number = integer(one, "question_id", questions_file);
    const std::string where = text(questions_file, " question ", number);
    const int64_t place = places.numbered(integer(one, "image_id", where));
    if (place < 0) {
      ++left_out_;
      continue;
    }
    const auto found = by_question.find(number);
    if (found == by_question.end()) fail(where, " has no annotation in ", answers_file);
    Json record = *found->second;
    record["question"] = word(one, "question", where);
    add(record, place, where, kinds);
  }
}

const std::vector<std::string>& Conversations::answers(int64_t index) const {
  static const std::vector<std::string> none;
  return asked_ ? none : records_[static_cast<size_t>(index)].answers;
}
int64_t Conversations::choices(int64_t index) const {
  return asked_ ? 0 : records_[static_cast<size_t>(index)].choices;
}
int64_t Conversations::right_choice(int64_t index) const {
  return asked_ ? 0 : records_[static_cast<size_t>(index)].right;
}

Conversations::Conversations(std::shared_ptr<const Source> images)
    : images_(std::move(images)), asked_(image_questions(*images_)) {
  if (!asked_) fail_usage(images_->describe(), " has no questions of its own: give a file of conversations");
  types_ = asked_->question_types();
}

int64_t Conversations::size() const {
  return asked_ ? images_->size() * asked_->questions_per_image() : std::ssize(records_);
}

int64_t Conversations::image_words(int64_t index) const {
  int64_t words = 0;
  if (asked_ || records_[static_cast<size_t>(index)].image < 0) return words;
  for (const std::string& said : records_[static_cast<size_t>(index)].turns)
    for (size_t at = said.find(kImageWord); at != std::string::npos; at = said.find(kImageWord, at + 1))
      ++words;
  return words;
}

std::vector<std::string> Conversations::problems_of(int64_t index) const {
  std::vector<std::string> lines;
  if (asked_) return lines;
  const Record& record = records_[static_cast<size_t>(index)];
  const std::string about = record.image < 0 ? "no image" : images_->read(record.image).name;
  const std::string where = text(record.where, ": the conversation about ", about, " ");
  for (size_t turn = 0; turn < record.turns.size(); ++turn)
    if (trim(record.turns[turn]).empty())
      lines.push_back(text(where, "has an empty turn, number ", turn + 1));
  if (const int64_t words = image_words(index); words > 1)
    lines.push_back(text(where, "holds '", kImageWord, "' ", words, " times, must be once"));
  return lines;
}

RawSample Conversations::read(int64_t index) const {
  if (asked_) {
    const int64_t each = asked_->questions_per_image();
    const AskedImage asked = asked_->ask(index / each, index % each);
    RawSample sample = images_->read(index / each);
    sample.annotation.captions = asked.turns;
    sample.annotation.classes = {std::find(types_.begin(), types_.end(), asked.type) - types_.begin()};
    return sample;
  }
  const Record& record = records_[static_cast<size_t>(index)];
  RawSample sample;
  if (record.image < 0) {
    sample.name = record.where;
    sample.picture = Image(1, 1, 3);
    sample.without_image = true;
  } else {
    sample = images_->read(record.image);
  }
  sample.annotation.captions = record.turns;
  sample.annotation.classes = {record.type};
  return sample;
}

namespace {

class ConversationAnnotations final : public Annotations {
 public:
  explicit ConversationAnnotations(const Conversations& source)
      : Annotations(source), conversations_(source) {}
  bool one_split() const override { return true; }
  bool repeats_images() const override { return true; }
  std::vector<std::string> problems_of(int64_t index, const RawSample&) const override {
    return conversations_.problems_of(index);
  }
  std::string caption_of(int64_t, const RawSample& sample) const override {
    return join(sample.annotation.captions, " ");
  }

 private:
  const Conversations& conversations_;
};

}  // namespace

std::unique_ptr<Annotations> Conversations::annotations() const {
  return std::make_unique<ConversationAnnotations>(*this);
}

uint64_t Conversations::fingerprint() const {
  Fingerprint print;
  print.add(checksum_);
  print.add(static_cast<int64_t>(images_->fingerprint()));
  return print.value();
}

std::string Conversations::describe() const {
  return asked_ ? text(size(), " questions about ", images_->describe())
                : text("conversations ", path_, ", ", std::ssize(records_) - without_image_, " about ",
                       images_->describe(),
                       without_image_ > 0 ? text(" and ", without_image_, " without an image") : "",
                       left_out_ > 0 ? text("; ", left_out_, " about no image of them left out") : "");
}

namespace {

constexpr std::string_view kPrefix = "conversations:";

}  // namespace

bool is_conversations_path(const std::string& path) { return path.starts_with(kPrefix); }

std::unique_ptr<Source> open_conversations(const SourceConfig& config, Split split) {
  const std::string path = path_of(config, split).substr(kPrefix.size());
  const size_t comma = path.find(',');
  if (comma == std::string::npos || comma == 0 || comma + 1 == path.size())
    fail_usage("data path '", kPrefix, path, "' must be conversations:FILE,IMAGES");
  // Opens all images of that path; the file then selects among them.
  SourceConfig images = config;
  images.path = images.val_path = path.substr(comma + 1);
  return std::make_unique<Conversations>(path.substr(0, comma), open_source(images, split));
}

}  // namespace tessera::data
