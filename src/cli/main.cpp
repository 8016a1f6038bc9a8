#include <string_view>

#include "cli/base/command.h"
#include "core/memory.h"

int main(int argc, char** argv) {
  tessera::keep_freed_memory();
  if (argc == 3 && std::string_view(argv[1]) == "--write-answers") {  // the build does
    tessera::cli::write_answers(argv[2]);
    return 0;
  }
  return tessera::cli::run_program(argc, argv);
}
