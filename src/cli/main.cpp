#include "cli/base/command.h"
#include "core/memory.h"

int main(int argc, char** argv) {
  tessera::keep_freed_memory();
  return tessera::cli::run_program(argc, argv);
}
