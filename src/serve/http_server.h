// One event loop that reads requests and writes responses, with limits on all resources that a client can
// occupy. Boost.Beast parses; its headers are not included here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/http.h"

namespace tessera::serve {

struct HttpLimits {
  uint32_t header_bytes = 16384;
  uint64_t body_bytes = uint64_t{64} << 20;
  uint64_t all_bodies_bytes = uint64_t{512} << 20;  // total of all requests that are being read or computed
  int64_t connections = 4096;
  double header_seconds = 10, body_seconds = 60, idle_seconds = 75, write_seconds = 60;
};

class HttpServer {
 public:
  // Listens on "127.0.0.1:8080", "[::1]:8080" or "unix:/run/tessera.sock"; port 0 chooses a free one. Throws
  // a usage error if it is in use or not an address of this machine.
  HttpServer(const std::string& place, const HttpLimits& limits, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // Returns "http://127.0.0.1:8080", or the path of a Unix socket.
  std::string address() const;
  int64_t connections() const;

  // Calls `act` in the loop: on a signal, now, or every `seconds`.
  void on_signal(int signal, std::function<void()> act);
  void post(std::function<void()> act);
  void every(double seconds, std::function<void()> act);

  // Runs the loop until drain() is complete.
  void run();
  // Accepts the connections that wait, and no more. Ends run() once every request on an accepted connection is answered,
  // at the latest after `seconds`; connections without one are closed after a second. Call it within the loop.
  void drain(double seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Settings of sockets that the library of the event loop does not have.

// Raises the limit on open files to the maximum of the system. Returns the number of connections that fit.
int64_t connections_that_fit(int64_t wanted);

// Makes the system drop further connection requests (SYN) of a listening socket, while those that have begun complete.
// A caller repeats its request a second later, and is refused once the socket is closed. No effect on Unix sockets.
void refuse_new_handshakes(int listener);

}  // namespace tessera::serve
