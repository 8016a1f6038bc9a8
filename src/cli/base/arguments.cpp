#include "cli/base/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {

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
