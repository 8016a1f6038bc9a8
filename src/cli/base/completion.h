// Shells complete commands and options by a script that the program writes.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct CommandWords {
  std::string name, summary;  // "train", or "data check"
  struct Option {
    std::string name, help;  // "--set"
  };
  std::vector<Option> options;
};

// The words of every command, from the table of commands.
std::vector<CommandWords> command_words();

// The script for "bash", "zsh" or "fish".
std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tessera::cli
