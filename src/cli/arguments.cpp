#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>

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
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}

Argument& Argument::optional_value() {
  option_->expected(0, 1);
  return *this;
}

Argument& Argument::integer_range(long long least, long long most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Argument& Argument::real_range(double least, double most) {
  option_->check(CLI::Range(least, most));
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
