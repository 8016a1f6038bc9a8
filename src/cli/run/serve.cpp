// `tessera serve WEIGHTS…`: answers requests over HTTP with trained weights.
#include "serve/server.h"

#include <iostream>
#include <mutex>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"

namespace tessera::cli {
namespace {

struct ServeArguments : ComputeOptions {
  serve::ServeOptions serve;
  int64_t port = 8080;
  std::string listen, socket;

  template <class V>
  void visit(V& v) {
    v("models", serve.models, {.argument = "WEIGHTS", .required = true},
      "weights files, checkpoints or run directories, each as PATH or NAME=PATH");
    v("port", port, between(0, 65535), "port on this machine's loopback address; 0 = a free one");
    v("socket", socket, "a Unix socket instead of a port");
    v("listen", listen, "ADDRESS:PORT for other machines, with --token-file or --open");
    v("token_file", serve.token_file, "file with the token that requests carry; only its owner may read it");
    v("open", serve.open, "--listen: without a token");
    v("host", serve.hosts, "a name that Host may have, in addition to addresses; may be repeated");
    v("batch", serve.batch, between(0, 4096), "most images of a batch; 0 = measured at the start");
    v("wait_ms", serve.wait_ms, between(-1, 60000),
      "longest wait for a full batch; -1 = only while further requests are decoded");
    v("queue", serve.queue, between(1, 1'000'000), "requests of a model that wait; more are refused");
    v("queue_mb", serve.queue_mb, between(1, 1 << 20), "megabytes that those hold");
    v("body_mb", serve.body_mb, between(1, 4096), "megabytes of a request");
    v("megapixels", serve.megapixels, between(1, 1000), "of a decoded image");
    v("connections", serve.connections, between(1, 1'000'000), "open connections");
    v("jobs", serve.jobs, between(1, 100'000), "jobs that are not done");
    v("timeout", serve.timeout, between(1, 86400), "seconds in which a request has to begin");
    v("gallery", serve.gallery, "images or folders of images that models of images and texts search");
    v("index", serve.index, {.writes = Writes::cache},
      "--gallery: file that caches the images' vectors; with several models FILE.NAME for each");
    v("raw", serve.raw, "checkpoints: the raw weights instead of their moving average");
    ComputeOptions::visit(v);
  }
};

std::string place_of(const ServeArguments& options, const Given& given) {
  const int places = static_cast<int>(given.has("port")) + static_cast<int>(given.has("socket")) +
                     static_cast<int>(given.has("listen"));
  if (places > 1) fail_usage("--port, --socket and --listen: choose one");
  if (!options.socket.empty()) return "unix:" + options.socket;
  return options.listen.empty() ? "127.0.0.1:" + std::to_string(options.port) : options.listen;
}

void serve(const ServeArguments& options, const Given& given) {
  serve::ServeOptions settings = options.serve;
  if (settings.gallery.empty() && !settings.index.empty()) fail_usage("--index goes with --gallery");
  settings.place = place_of(options, given);
  settings.device = options.device, settings.precision = options.precision,
  settings.threads = options.threads;
  settings.version = program_version();
  std::mutex mutex;
  serve::run_server(settings, [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    (line.starts_with("serving") ? std::cout : std::cerr) << one_line(line) << std::endl;
  });
}

}  // namespace

void add_serve(Arguments& command, Action& action) { action = with_options<ServeArguments>(command, serve); }

}  // namespace tessera::cli
