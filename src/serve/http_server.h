// One event loop that reads requests and writes responses, with limits on everything that a caller can hold. Boost.Beast
// parses; no header of it is included here.
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
  uint64_t all_bodies_bytes = uint64_t{512} << 20;  // of all requests that are read or computed
  int64_t connections = 4096;
  double header_seconds = 10, body_seconds = 60, idle_seconds = 75, write_seconds = 60;
};

class HttpServer {
 public:
  // Listens on "127.0.0.1:8080", "[::1]:8080" or "unix:/run/tessera.sock"; port 0 takes a free one. Throws a usage
  // error if the place is in use or no address of this machine.
  HttpServer(const std::string& place, const HttpLimits& limits, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // "http://127.0.0.1:8080", or the place of a Unix socket.
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

}  // namespace tessera::serve
