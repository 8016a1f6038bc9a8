#include "core/interrupt.h"

#include <signal.h>
#include <unistd.h>

namespace tessera {
namespace {

volatile sig_atomic_t signals = 0;

void on_signal(int) {
  signals = signals + 1;
  if (signals > 1) _exit(130);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return signals > 0; }

void forget_interrupts() { signals = 0; }

}  // namespace tessera
