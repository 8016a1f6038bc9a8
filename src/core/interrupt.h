// SIGINT and SIGTERM as a flag that long work checks between steps, so that it can save its state first.
#pragma once

namespace tessera {

// The scope of work that checks interrupted() regularly. Scopes may nest.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

// For programs. Within an Interruptible scope, the first signal sets the flag, and a second one ends the
// process at once with exit code 130. Outside such scopes a signal ends the process as usual. From now on, a
// write beyond the file size limit (ulimit -f) is an error instead of a signal.
void catch_interrupts();
bool interrupted();
// Clears the flag: for programs that continue after a signal, and for tests.
void forget_interrupts();

}  // namespace tessera
