// The table of subcommands: adding one is its file and a line here.
#include "cli/command.h"

namespace tessera::cli {

void add_models(CLI::App&, Action&);
void add_doctor(CLI::App&, Action&);
void add_version(CLI::App&, Action&);

std::span<const Command> commands() {
  static constexpr Command table[] = {
      {"models", "list the backbones with their parameters and multiply-adds", "tessera models vil --json",
       add_models},
      {"doctor", "what is installed, instruction sets, threads, GPU", "tessera doctor", add_doctor},
      {"version", "the version of the program and its libraries", "tessera version", add_version},
  };
  return table;
}

}  // namespace tessera::cli
