// write_answers FILE: the build writes the table of the front (answers.h) by this program, which is not installed.
#include <cstdio>

#include "cli/base/command.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_answers FILE\n", stderr);
    return 2;
  }
  tessera::cli::write_answers(argv[1]);
  return 0;
}
