// The program `tessera`: prints help, the version and completion scripts from a table, without loading LibTorch, and
// becomes tessera-program, in the same folder, for everything else. tessera-program prints the same texts itself; the
// build writes the table by running it.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cli/front/answers.h"

namespace tessera::cli {
namespace {

constexpr const char* kProgram = "tessera-program";
constexpr size_t kLongest = 256;  // bytes of the words of an answer

// Appends a word to a line of at most kLongest bytes; false if it is too long, or no word of the table: empty or with a space.
bool append(char* line, std::string_view word) {
  if (word.empty() || word.find(' ') != std::string_view::npos) return false;
  const size_t used = std::strlen(line), space = used > 0 ? 1 : 0;
  if (used + space + word.size() >= kLongest) return false;
  if (space) line[used] = ' ';
  std::memcpy(line + used + space, word.data(), word.size());
  line[used + space + word.size()] = '\0';
  return true;
}

// Spells the words as the table does: `help train` and `train -h` are "train --help".
bool spell(char* line, int argc, char** argv) {
  line[0] = '\0';
  const bool help = argc > 1 && std::string_view(argv[1]) == "help";
  for (int i = help ? 2 : 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool last = i + 1 == argc;
    if (!append(line, last && word == "-h" ? "--help" : word)) return false;
  }
  if (help) return append(line, "--help");
  if (std::string_view(line) == "--version") std::strcpy(line, "version");
  return true;
}

const Answer* find_answer(const char* words) {
  for (size_t i = 0; i < kAnswerCount; ++i)
    if (std::strcmp(kAnswers[i].words, words) == 0) return &kAnswers[i];
  return nullptr;
}

int print(const char* text) {
  if (std::fputs(text, stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  std::fputs("tessera: standard output: cannot write (is the disk full?)\n", stderr);
  return 1;
}

// Bounds how long threads of OpenMP wait without sleeping, unless the user has: GCC's runtime reads it when it is loaded. By
// default they spin for milliseconds. Next to another busy process they take the time from the threads that compute, and
// training is six times slower than with this; on an idle machine it costs nothing.
void bound_spinning() {
  if (!std::getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "5000", /*overwrite=*/0);
}

// Replaces this process by the whole program; returns only if that fails.
int become_program(char** argv) {
  char here[PATH_MAX];
  if (!getcwd(here, sizeof here) && errno == ENOENT) {  // libraries would end it with their own text
    std::fputs("tessera: the working directory was removed: change to another one\n", stderr);
    return 1;
  }
  char path[PATH_MAX] = "";
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - std::strlen(kProgram) - 1);
  char* const folder_end = length > 0 ? std::strrchr(path, '/') : nullptr;
  if (folder_end) {
    std::strcpy(folder_end + 1, kProgram);
    // A signal while the program is loaded waits until it can print a line, see catch_interrupts().
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    bound_spinning();
    execv(path, argv);
  }
  std::fprintf(stderr, "tessera: cannot start '%s': %s; it must be in the folder of this program\n",
               folder_end ? path : kProgram, std::strerror(errno));
  return 1;
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) {
  using namespace tessera::cli;
  char words[kLongest];
  if (spell(words, argc, argv))
    if (const Answer* answer = find_answer(words)) return print(answer->text);
  return become_program(argv);
}
