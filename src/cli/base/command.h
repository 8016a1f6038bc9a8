// The interface of subcommands: each is one file with its options and its action, and one line in the table
// of commands.cpp.
//
//   void add_version(Arguments& command, Action& action) {
//     action = [] { std::cout << "…"; };
//   }
//
// An action prints results to stdout, throws Error for failures, and returns when done.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/arguments.h"

namespace tessera::cli {

struct Command {
  const char* name;     // "train", or "data check" for a command inside a group
  const char* summary;  // one line for the overview
  const char* example;  // an example command line, shown under the options
  void (*add)(Arguments& command, Action& action);
};

std::span<const Command> commands();

// One line for a group ("data") in the overview.
std::string_view group_summary(std::string_view group);

// Runs the program; returns the exit code: 0 done, 1 failed, 2 wrong usage, 75 another process was lost, 130 interrupted.
int run_program(int argc, const char* const* argv);

// Writes the C++ source of the front's table (cli/front/answers.h).
void write_answers(const std::string& file);

// Shells complete commands and options by a script that the program writes.

struct CommandWords {
  std::string name, summary;  // "train", or "data check"
  struct Option {
    std::string name, help;  // "--set"
  };
  std::vector<Option> options;
};

// Returns the words of every command, from the table of commands.
std::vector<CommandWords> command_words();

// The script for "bash", "zsh" or "fish".
std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands);

std::string program_version();

}  // namespace tessera::cli
