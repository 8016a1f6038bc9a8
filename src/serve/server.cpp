#include "serve/server.h"

#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "io/files/file.h"
#include "open/device.h"
#include "open/image_walk.h"
#include "serve/http_server.h"
#include "serve/reloader.h"
#include "serve/service.h"

namespace tessera::serve {
namespace {

constexpr size_t kLeastToken = 16, kMostToken = 4096;  // bytes

bool is_loopback(const std::string& place) {
  return place.starts_with("unix:") || place.starts_with("127.") || place.starts_with("localhost:") ||
         place.starts_with("[::1]:");
}

// Returns the token of a file. Throws a usage error if others can read it, or if it is short.
std::string read_token(const std::string& path) {
  if (path.empty()) return "";
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail_usage("--token-file '", path, "' does not exist");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    fail_usage("--token-file '", path, "' can be read by others: chmod 600 ", path);
  const std::string token(trim(read_text(path, kMostToken)));
  if (token.size() < kLeastToken || token.find_first_of(" \t\r\n") != std::string::npos)
    fail_usage("--token-file '", path, "' must hold one word of at least ", kLeastToken, " characters");
  return token;
}

ServiceOptions service_options(const ServeOptions& options, const std::string& token) {
  ServiceOptions out{.token = token,
                     .hosts = {},
                     .any_host = options.place.starts_with("unix:") || !token.empty(),
                     .body_bytes = static_cast<uint64_t>(options.body_mb) << 20,
                     .request_seconds = options.timeout,
                     .version = options.version};
  for (const std::string& host : options.hosts) out.hosts.push_back(lower(host));
  return out;
}

answer::OpenRequest open_request(const ServeOptions& options, const std::function<bool()>& stopped) {
  return {.weights = {},
          .raw = options.raw,
          .device = options.device,
          .precision = options.precision,
          .batch = options.batch > 0 ? options.batch : 16,
          .max_pixels = options.megapixels * 1'000'000,
          .gallery = options.gallery,
          .index = options.index,
          .stopped = stopped};
}

}  // namespace

void check(const ServeOptions& options) {
  model_paths(options.models);
  if (!is_loopback(options.place) && options.token_file.empty() && !options.open)
    fail_usage("--listen ", options.place,
               " lets other machines in: give --token-file FILE, or --open for everyone");
  read_token(options.token_file);
}

void run_server(const ServeOptions& options, const std::function<void(const std::string& line)>& print) {
  check(options);
  Metrics metrics;
  Jobs jobs(options.jobs);
  std::optional<Service> service;
  // Outlives the threads that reply to it.
  HttpServer server(
      options.place,
      {.body_bytes = static_cast<uint64_t>(options.body_mb) << 20, .connections = options.connections},
      [&](HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
        service->handle(std::move(request), exchange);
      });
  Decoders decoders(std::max(1, available_cores() / 8));
  Computer computer(metrics);
  computer.run([&] { train::use_threads_for_walk(options.threads); });
  std::atomic<bool> stopping = false;
  Models models(model_paths(options.models), open_request(options, [&] { return stopping.load(); }),
                {.batch = options.batch,
                 .wait_ms = options.wait_ms,
                 .requests = options.queue,
                 .bytes = static_cast<size_t>(options.queue_mb) << 20},
                computer, answer::open_answerers);
  service.emplace(service_options(options, read_token(options.token_file)), models, computer, decoders, jobs,
                  metrics);
  bool serving = false;
  Reloader reloader(
      [&] {
        if (serving) train::use_threads(1);  // the computing thread needs the others
        for (const std::string& line : models.open()) print(line);
      },
      print);
  const auto stop = [&] {
    stopping = true;
    service->set_ready(false);
    jobs.cancel_all();
    server.drain(options.timeout);
  };
  server.on_signal(SIGTERM, stop);
  server.on_signal(SIGINT, stop);
  server.on_signal(SIGHUP, [&] { reloader.reload(); });
  server.every(10, [&] { jobs.forget_old(); });
  std::exception_ptr failure;
  reloader.begin([&](std::exception_ptr error) {
    serving = true;
    server.post([&, error] {
      if (stopping) return;
      failure = error;
      if (error) return stop();
      service->set_ready(true);
      print("serving  " + server.address());
    });
  });
  server.run();
  service->abandon();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera::serve
