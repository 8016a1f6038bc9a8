// Settings of sockets that the library of the event loop does not have.
#pragma once

#include <cstdint>

namespace tessera::serve {

// Raises the limit on open files to the maximum of the system. Returns the number of connections that fit.
int64_t connections_that_fit(int64_t wanted);

// Makes the system drop further connection requests (SYN) of a listening socket, while those that have begun complete.
// A caller repeats its request a second later, and is refused once the socket is closed. No effect on Unix sockets.
void refuse_new_handshakes(int listener);

}  // namespace tessera::serve
