// The options of a command: one struct whose `visit` names them (core/options.h).
//
//   void add_predict(Arguments& command, Action& action) { action = with_options<PredictOptions>(command, predict); }
//
// CLI11 parses. Only arguments.cpp and program.cpp include it, since each file that does takes five seconds
// longer to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

// The options that the user gave to a command, after parsing.
class Given {
 public:
  bool has(std::string_view key) const;
  // Throws a usage error "--eta REASON" for the first given option with a reason from `objection`.
  void refuse(const std::function<std::string(const OptionField&)>& objection) const;
  // Throws a usage error "--eta is for READER; WHY" for the first given option that is only for another
  // reader. `also`: keys that this reader reads nevertheless.
  void refuse_others(std::string_view reader, const std::string& why,
                     const std::vector<std::string>& also = {}) const;
  // Throws a usage error if a given output would replace an input or another output (output_places.h).
  void guard_outputs() const;
  // Adds the setting "train.epochs=3" and the name "--epochs" of each given option that sets a key of the recipe.
  void add_recipe_settings(std::vector<std::string>& settings, std::vector<std::string>& names) const;

 private:
  friend class Arguments;
  struct Declared {
    OptionField field;
    const CLI::Option* option = nullptr;
  };
  std::vector<Declared> declared_;
};

class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  // Declares the fields of `options`, which must outlive the parsing. Help shows their current values.
  template <class Options>
  Given add(Options& options) {
    return declare(option_fields(options));
  }

 private:
  Given declare(std::vector<OptionField> fields);

  CLI::App& app_;
};

using Action = std::function<void()>;

// Declares the options of a command and returns the action that runs it with them.
template <class Options>
Action with_options(Arguments& command, void (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  return [options, run, given = command.add(*options)] {
    given.guard_outputs();
    run(*options);
  };
}
template <class Options>
Action with_options(Arguments& command, void (*run)(const Options&, const Given&)) {
  const auto options = std::make_shared<Options>();
  return [options, run, given = command.add(*options)] {
    given.guard_outputs();
    run(*options, given);
  };
}

}  // namespace tessera::cli
