#include "cli/base/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/base/output_places.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"

namespace tessera::cli {
namespace {

// "INT:[1 - 100]", "TEXT:{tsne,pca}".
std::string type_text(const OptionField& field) {
  using Kind = OptionField::Kind;
  if (field.kind == Kind::flag) return "";
  if (!field.rules.choices.empty()) return "TEXT:{" + join(field.rules.choices, ",") + "}";
  const std::string type = field.kind == Kind::integer  ? "INT"
                           : field.kind == Kind::number ? "FLOAT"
                                                        : "TEXT";
  const std::string range = field.rules.range.text();
  const bool bounded = std::isfinite(field.rules.range.low) || std::isfinite(field.rules.range.high);
  return bounded ? type + ":[" + range + "]" : type;
}

// The default shown in help; none if it is out of range, which marks an unset option.
std::string default_text(const OptionField& field) {
  const std::optional<Value> value = field.get();
  if (!value || value->is_bool()) return "";
  if (value->is_string()) return value->as_string();
  if (value->is_number()) {
    if (!field.rules.range.holds(value->as_double())) return "";
    return value->is_int() ? text(value->as_int()) : text(value->as_double());
  }
  std::vector<std::string> words;
  for (const Value& word : value->as_array()) words.push_back(word.as_string());
  return join(words, " ");
}

// Returns the value of "data.path='photos'", without quotes.
std::string_view after_equals(std::string_view setting) {
  std::string_view value = trim(setting.substr(setting.find('=') + 1));
  if (value.size() > 1 && (value.front() == '"' || value.front() == '\''))
    value = value.substr(1, value.size() - 2);
  return value;
}

}  // namespace

Given Arguments::declare(std::vector<OptionField> fields) {
  Given given;
  for (OptionField& field : fields) {
    const std::string names =
        field.rules.names.empty() ? field.name() : field.name() + "," + field.rules.names;
    CLI::Option* option = app_.add_option(
        names,
        [field](const std::vector<std::string>& words) {
          field.set(field.parsed(words));
          return true;
        },
        field.rules.readers.empty() ? field.meaning : field.rules.readers + ": " + field.meaning);
    option->type_name(type_text(field))->required(field.rules.required)->default_str(default_text(field));
    if (field.kind == OptionField::Kind::flag)
      option->expected(0)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (field.kind == OptionField::Kind::words) option->expected(CLI::detail::expected_max_vector_size);
    if (field.rules.optional_value) option->expected(0, 1);
    given.declared_.push_back({std::move(field), option});
  }
  return given;
}

bool Given::has(std::string_view key) const {
  return std::ranges::any_of(
      declared_, [&](const Declared& one) { return one.field.key == key && one.option->count() > 0; });
}

void Given::guard_outputs() const {
  std::vector<std::string> inputs;
  std::vector<OutputPlace> outputs;
  for (const auto& [field, option] : declared_) {
    const std::optional<Value> value = option->count() > 0 ? field.get() : std::nullopt;
    if (!value) continue;
    std::vector<std::string> words;
    if (value->is_string()) words.push_back(value->as_string());
    if (value->is_array())
      for (const Value& word : value->as_array()) words.push_back(word.as_string());
    const bool replaces = field.rules.writes != Writes::cache && !has("resume");
    const bool alone = field.rules.writes != Writes::together && !has("part");
    for (const std::string& word : words) {
      if (field.rules.writes == Writes::nothing)
        inputs.push_back(field.key == "set" ? std::string(after_equals(word)) : word);
      else if (!word.empty())
        outputs.push_back({.path = word, .option = field.name(), .replaces = replaces, .alone = alone});
    }
  }
  cli::guard_outputs(inputs, outputs);
}

void Given::add_recipe_settings(std::vector<std::string>& settings, std::vector<std::string>& names) const {
  for (const auto& [field, option] : declared_)
    if (option->count() > 0 && !field.rules.sets.empty()) {
      settings.push_back(field.rules.sets + "=" + toml_text(*field.get()));
      names.push_back(field.name());
    }
}

void Given::refuse(const std::function<std::string(const OptionField&)>& objection) const {
  for (const auto& [field, option] : declared_)
    if (option->count() > 0)
      if (const std::string reason = objection(field); !reason.empty()) fail_usage(field.name(), " ", reason);
}

void Given::refuse_others(std::string_view reader, const std::string& why,
                          const std::vector<std::string>& also) const {
  refuse([&](const OptionField& field) {
    const std::string& only = field.rules.only_for;
    const bool reads = only.empty() || only == reader || std::ranges::find(also, field.key) != also.end();
    return reads ? std::string() : text("is for ", only, "; ", why);
  });
}

}  // namespace tessera::cli
