#include "core/progress.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace tessera {
namespace {

// A signal may interrupt any thread.
std::atomic<int> signals = 0, stretches = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

// Only functions that a signal handler may call.
void print_end(int signal) {
  const std::string_view line = signal == SIGINT    ? "tessera: ended by SIGINT\n"
                                : signal == SIGTERM ? "tessera: ended by SIGTERM\n"
                                                    : "tessera: ended by SIGHUP\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void on_signal(int signal) {
  if (stretches == 0) {
    print_end(signal);
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // delivered when this handler returns
  } else if (++signals > 1) {
    _exit(130);
  }
}

}  // namespace

Interruptible::Interruptible() { ++stretches; }

Interruptible::~Interruptible() { --stretches; }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
  ::signal(SIGXFSZ, SIG_IGN);
  sigset_t ends;  // which the front of the program blocked
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
}

bool interrupted() { return signals > 0; }

void forget_interrupts() { signals = 0; }

}  // namespace tessera
