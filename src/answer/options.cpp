#include "answer/options.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "io/files/json.h"

namespace tessera::answer {
namespace {

constexpr double kMostBeams = 16;

const char* json_type(OptionField::Kind kind) {
  switch (kind) {
    case OptionField::Kind::flag:
      return "boolean";
    case OptionField::Kind::integer:
      return "integer";
    case OptionField::Kind::number:
      return "number";
    case OptionField::Kind::word:
      return "string";
    default:
      return "array";
  }
}

// Returns a value as the words that a command line would have.
std::vector<std::string> words_of(const OptionField& field, const Value& value) {
  if (value.is_string()) {
    if (field.kind != OptionField::Kind::words) return {value.as_string()};
    return split(value.as_string(), '\n');  // parameters of the V2 protocol cannot be lists
  }
  if (value.is_bool()) return {value.as_bool() ? "true" : "false"};
  if (value.is_int()) return {std::to_string(value.as_int())};
  if (value.is_double()) return {shortest(value.as_double())};
  if (field.kind != OptionField::Kind::words || !value.is_array())
    fail_usage("option '", field.key, "' is ", value.type_name(), ", must be ",
               field.kind == OptionField::Kind::words ? "an array of strings" : field.wanted());
  std::vector<std::string> words;
  for (const Value& word : value.as_array()) {
    if (!word.is_string())
      fail_usage("option '", field.key, "' has ", word.type_name(), ", must have strings");
    words.push_back(word.as_string());
  }
  return words;
}

void set_option(const OptionField& field, const Value& value) {
  try {
    field.set(field.parsed(words_of(field, value)));
  } catch (const Error& error) {
    std::string message = error.what();
    if (message.starts_with(field.name()))
      message = "option '" + field.key + "'" + message.substr(field.name().size());
    throw Error(ErrorKind::usage, message);
  }
}

}  // namespace

std::vector<OptionDescription> describe_options(const std::vector<OptionField>& fields) {
  std::vector<OptionDescription> out;
  for (const OptionField& field : fields) {
    OptionDescription option{
        .key = field.key, .meaning = field.meaning, .values = {}, .type = json_type(field.kind)};
    if (field.kind != OptionField::Kind::word && field.kind != OptionField::Kind::words)
      option.values = field.wanted();
    if (!field.rules.readers.empty()) option.meaning = field.rules.readers + ": " + option.meaning;
    option.choices = field.rules.choices;
    option.low = field.rules.range.low, option.high = field.rules.range.high;
    if (const auto value = field.get())
      option.standard =
          nlohmann::ordered_json::parse(json_text(Value(Value::Table{{"value", *value}})))["value"];
    out.push_back(std::move(option));
  }
  return out;
}

std::vector<OptionField> request_fields(std::vector<OptionField> fields) {
  for (OptionField& field : fields)
    if (field.key == "beams" || field.key == "beam_groups")
      field.rules.range.high = std::min(field.rules.range.high, kMostBeams);
  return fields;
}

std::string in_request_words(const std::string& message, const Description& description) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const size_t flag = std::min(message.find("--", at), message.size());
    out += message.substr(at, flag - at);
    size_t end = std::min(flag + 2, message.size());
    while (end < message.size() &&
           (std::isalnum(static_cast<unsigned char>(message[end])) || message[end] == '-'))
      ++end;
    const std::string word = message.substr(flag, end - flag);
    std::string key = word.substr(std::min<size_t>(2, word.size()));
    std::ranges::replace(key, '-', '_');
    const bool option = std::ranges::count(description.options, key, &OptionDescription::key) > 0,
               input = std::ranges::count(description.inputs, key, &ArrayDescription::name) > 0;
    out += option ? "option '" + key + "'" : input ? "input '" + key + "'" : word;
    at = end;
  }
  return out;
}

void set_options(const std::vector<OptionField>& fields, const Value& given) {
  std::vector<std::string> known;
  for (const OptionField& field : fields) known.push_back(field.key);
  for (const auto& [key, value] : given.as_table()) {
    const auto field = std::ranges::find(fields, key, &OptionField::key);
    if (field == fields.end())
      fail_usage("there is no option '", printable(key), "'",
                 known.empty() ? ", there are none" : ", it must be " + join(known, ", "),
                 did_you_mean(key, known));
    set_option(*field, value);
  }
}

}  // namespace tessera::answer
