#include "core/progress.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tessera {
namespace {

// A signal may interrupt any thread.
std::atomic<int> signals = 0, stretches = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

void on_signal(int signal) {
  if (stretches == 0) {
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
  ::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() { return signals > 0; }

void forget_interrupts() { signals = 0; }

}  // namespace tessera
