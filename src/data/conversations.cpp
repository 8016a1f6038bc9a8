#include "data/conversations.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/source_kinds.h"
#include "io/file.h"
#include "io/json.h"

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

}  // namespace

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
    const auto answers = record.find("answers");
    if (answers == record.end() || !answers->is_array() || answers->empty() || !(*answers)[0].is_string())
      fail(where, " has a question without 'answers'");
    turns = {word(record, "question", where), (*answers)[0].get<std::string>()};
    return turns;
  }
  const auto given = record.find("conversations");
  if (given == record.end() || !given->is_array())
    fail(where, " has neither 'conversations' nor a 'question'");
  for (const Json& turn : *given) {
    if (!turn.is_object()) fail(where, ": a turn is no object");
    const bool human = word(turn, "from", where) == "human";
    if (human != (turns.size() % 2 == 0))
      fail(where, ": turn ", turns.size() + 1, " is from '", printable(word(turn, "from", where)),
           "', human and gpt must alternate");
    turns.push_back(word(turn, "value", where));
  }
  if (turns.size() < 2 || turns.size() % 2 != 0) fail(where, " has ", turns.size(), " turns, must be pairs");
  return turns;
}

Conversations::Conversations(const std::string& path, std::shared_ptr<const Source> images)
    : path_(path), images_(std::move(images)) {
  std::map<std::string, int64_t> places;
  for (int64_t i = 0; i < images_->size(); ++i)
    places.emplace(without_extension(conversation_image(images_->read(i).name)), i);
  const std::string content = read_text(path, kMostBytes);
  checksum_ = checksum_of(as_bytes(content));
  std::vector<std::string> kinds;
  const auto add = [&](const Json& record, const std::string& where) {
    check(record.is_object(), where, " is no JSON object");
    const std::string image = word(record, "image", where);
    const auto place = places.find(without_extension(conversation_image(image)));
    if (place == places.end())
      fail(where, ": the image '", printable(image), "' is not among ", images_->describe());
    records_.push_back({conversation_turns(record, where), place->second, 0});
    kinds.push_back(record.value("answer_type", ""));
  };
  const JsonLimits limits{kMostBytes, 16, 4096};
  if (lower(path).ends_with(".json")) {
    const Json all = parse_json(content, path, limits);
    check(all.is_array(), path, " must be an array of conversations");
    for (size_t i = 0; i < all.size(); ++i) add(all[i], text(path, " entry ", i + 1));
  } else {
    int64_t number = 0;
    for (const std::string& line : split(content, '\n')) {
      const std::string where = text(path, " line ", ++number);
      if (!trim(line).empty()) add(parse_json(line, where, limits), where);
    }
  }
  check(!records_.empty(), path, " holds no conversations");
  const std::set<std::string> distinct(kinds.begin(), kinds.end());
  types_.assign(distinct.begin(), distinct.end());
  for (size_t i = 0; i < records_.size(); ++i)
    records_[i].type = std::lower_bound(types_.begin(), types_.end(), kinds[i]) - types_.begin();
}

Conversations::Conversations(std::shared_ptr<const Source> images)
    : images_(std::move(images)), asked_(image_questions(*images_)) {
  if (!asked_) fail_usage(images_->describe(), " asks no questions: a file of conversations must be given");
  types_ = asked_->question_types();
}

int64_t Conversations::size() const {
  return asked_ ? images_->size() * asked_->questions_per_image() : std::ssize(records_);
}

std::vector<std::string> Conversations::problems_of(int64_t index) const {
  std::vector<std::string> lines;
  if (asked_) return lines;
  const Record& record = records_[static_cast<size_t>(index)];
  const std::string where = images_->read(record.image).name + ": its conversation ";
  int64_t places = 0;
  for (size_t turn = 0; turn < record.turns.size(); ++turn) {
    const std::string& said = record.turns[turn];
    if (trim(said).empty()) lines.push_back(text(where, "has an empty turn, number ", turn + 1));
    for (size_t at = said.find(kImageWord); at != std::string::npos; at = said.find(kImageWord, at + 1))
      ++places;
  }
  // Without one the image stands in front of the first question.
  if (places > 1) lines.push_back(text(where, "holds '", kImageWord, "' ", places, " times, must be once"));
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
  RawSample sample = images_->read(record.image);
  sample.annotation.captions = record.turns;
  sample.annotation.classes = {record.type};
  return sample;
}

uint64_t Conversations::fingerprint() const {
  Fingerprint print;
  print.add(checksum_);
  print.add(static_cast<int64_t>(images_->fingerprint()));
  return print.value();
}

std::string Conversations::describe() const {
  return asked_ ? text(size(), " questions about ", images_->describe())
                : text("conversations ", path_, ", ", records_.size(), " about ", images_->describe());
}

}  // namespace tessera::data
