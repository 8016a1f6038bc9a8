// What a shell may complete, and the scripts that tell it.
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

// Of every command, from the table of commands.
std::vector<CommandWords> command_words();

// The script for "bash", "zsh" or "fish".
std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tessera::cli
