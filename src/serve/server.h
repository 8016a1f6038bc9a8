// A server of opened weights over HTTP: docs/serve.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::serve {

struct ServeOptions {
  std::vector<std::string> models;       // "NAME=PATH" or PATH
  std::string place = "127.0.0.1:8080";  // or "unix:FILE"
  std::string token_file;                // "" = none
  bool open = false;                     // other machines need no token
  std::vector<std::string> hosts;        // further names in Host
  std::vector<std::string> gallery;      // images or folders that retrieve searches
  std::string index;                     // file that caches their vectors
  bool raw = false;
  std::string device = "auto", precision = "fp32";
  int64_t threads = 0, batch = 0, queue = 64, queue_mb = 256, body_mb = 64, megapixels = 50;
  int64_t connections = 4096, jobs = 16;
  double wait_ms = -1, timeout = 60;
  std::string version;
};

// Throws a usage error for invalid options, if possible before any weights are opened.
void check(const ServeOptions& options);

// Serves until SIGTERM or SIGINT, then finishes the accepted requests. SIGHUP reloads the weights. `print`
// gets lines for people, the address first once requests are answered.
void run_server(const ServeOptions& options, const std::function<void(const std::string& line)>& print);

}  // namespace tessera::serve
