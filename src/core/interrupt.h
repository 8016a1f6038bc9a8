// SIGINT and SIGTERM as a flag that long work asks for between steps, so that it can save its state first.
#pragma once

namespace tessera {

// Installs the handlers. The second signal ends the process at once with exit code 130.
void catch_interrupts();
bool interrupted();
// Forgets the signals so far: for programs that go on after one, and for tests.
void forget_interrupts();

}  // namespace tessera
