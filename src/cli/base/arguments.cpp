#include "cli/base/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"
#include "core/text.h"

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

// The default in help: none if it is outside the range, as a mark of an unset option.
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

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::show_default() {
  option_->capture_default_str();
  return *this;
}

Argument& Argument::one_of(std::vector<std::string> words) {
  option_->check(CLI::Validator(
      [words](const std::string& given) {
        if (std::find(words.begin(), words.end(), given) != words.end()) return std::string();
        return text("is '", given, "', must be one of ", join(words, ", "), did_you_mean(given, words));
      },
      "{" + join(words, ",") + "}"));
  return *this;
}

Argument& Argument::optional_value() {
  option_->expected(0, 1);
  return *this;
}

Argument& Argument::integer_range(long long least, long long most) {
  option_->check(CLI::Validator(
      [least, most](const std::string& given) {
        const auto value = parse_int(given);
        if (value && *value >= least && *value <= most) return std::string();
        return text("is '", given, "', must be a whole number from ", least, " to ", most);
      },
      text("[", least, " - ", most, "]")));
  return *this;
}

Argument& Argument::real_range(double least, double most) {
  option_->check(CLI::Validator(
      [least, most](const std::string& given) {
        const auto value = parse_double(given);
        if (value && *value >= least && *value <= most) return std::string();
        return text("is '", given, "', must be a number from ", least, " to ", most);
      },
      text("[", least, " - ", most, "]")));
  return *this;
}

bool Argument::given() const { return option_->count() > 0; }

template <class Value>
Argument Arguments::add(const char* names, Value& value, const char* help) {
  return Argument(app_.add_option(names, value, help));
}

template Argument Arguments::add(const char*, std::string&, const char*);
template Argument Arguments::add(const char*, std::vector<std::string>&, const char*);
template Argument Arguments::add(const char*, int&, const char*);
template Argument Arguments::add(const char*, int64_t&, const char*);
template Argument Arguments::add(const char*, uint64_t&, const char*);
template Argument Arguments::add(const char*, double&, const char*);

void Arguments::flag(const char* names, bool& value, const char* help) { app_.add_flag(names, value, help); }

}  // namespace tessera::cli
