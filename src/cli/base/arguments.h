// What a command lets its user say.
//
//   command.add("--batch", options->batch, "images at a time").show_default().range(1, 4096);
//   command.flag("--json", options->json, "one JSON object");
//
// CLI11 does the work; arguments.cpp and program.cpp alone include it, since it costs five seconds in every
// file that does.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

// One option or positional argument; the rules that follow are checked before the command runs.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument& required();
  Argument& show_default();  // in the help: the value that the variable holds now
  Argument& one_of(std::vector<std::string> words);
  Argument& optional_value();  // `--resume` as well as `--resume auto`
  template <class Number>
  Argument& range(Number least, Number most) {
    if constexpr (std::is_integral_v<Number>) return integer_range(least, most);
    return real_range(least, most);
  }

  // After parsing.
  bool given() const;

 private:
  Argument& integer_range(long long least, long long most);
  Argument& real_range(double least, double most);

  CLI::Option* option_;
};

class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  // `names` as "-o,--output", or "IMAGES" for a positional argument. Value: a string, a list of strings, int,
  // int64_t, uint64_t or double; it must outlive the parsing.
  template <class Value>
  Argument add(const char* names, Value& value, const char* help);
  void flag(const char* names, bool& value, const char* help);

 private:
  CLI::App& app_;
};

}  // namespace tessera::cli
