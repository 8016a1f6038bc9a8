// SIGINT and SIGTERM as a flag that long work asks for between steps, so that it can save its state first.
#pragma once

namespace tessera {

// A stretch of work that asks interrupted() again and again. Stretches may lie in one another.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

// For programs: inside of Interruptible stretches a signal from now on sets the flag, and a second one ends
// the process at once with exit code 130. Outside of them a signal ends the process as ever. A write beyond the
// limit of a file's size (ulimit -f) is an error from now on, not a signal.
void catch_interrupts();
bool interrupted();
// Forgets the signals so far: for programs that go on after one, and for tests.
void forget_interrupts();

}  // namespace tessera
