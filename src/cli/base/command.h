// The frame of the program: a subcommand is one file with its options and its work, and one line in the table of
// commands.cpp.
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

#include "cli/base/arguments.h"

namespace tessera::cli {

struct Command {
  const char* name;     // "train", or "data check" for a command inside a group
  const char* summary;  // one line for the overview
  const char* example;  // what a user would type, shown under the options
  void (*add)(Arguments& command, Action& action);
};

std::span<const Command> commands();

// One line for a group ("data") in the overview.
std::string_view group_summary(std::string_view group);

// Runs the program; returns the exit code (0 done, 1 failed, 2 wrong usage, 130 interrupted).
int run_program(int argc, const char* const* argv);

}  // namespace tessera::cli
