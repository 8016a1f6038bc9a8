// The routes of a server: turns HTTP requests into requests to models.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "serve/bodies.h"
#include "serve/computer.h"
#include "serve/http.h"
#include "serve/jobs.h"
#include "serve/models.h"
#include "serve/v2.h"

namespace tessera::serve {

struct ServiceOptions {
  std::string token;               // token of Authorization: Bearer; "" = none needed
  std::vector<std::string> hosts;  // additional names in Host, in lower case
  bool any_host = false;           // a Unix socket, or every caller needs the token
  uint64_t body_bytes = uint64_t{64} << 20;
  double request_seconds = 60;  // until a request is computed
  std::string version;
};

class Service {
 public:
  Service(ServiceOptions options, Models& models, Computer& computer, Decoders& decoders, Jobs& jobs,
          Metrics& metrics);

  // Answers a request, or starts to. Called by the event loop, so it only routes and admits.
  void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange);
  // Readiness. Once it was ready, a server that ends still answers requests that reach it, but begins no job.
  void set_ready(bool ready) {
    ready_ = ready;
    if (ready) opened_ = true;
  }
  // Cancels everything that is computed: nobody reads the answers.
  void abandon() { abandoned_ = true; }

 private:
  struct Call;  // one request on its way

  HttpResponse route(Call& call);
  HttpResponse route_get(const Call& call);
  HttpResponse route_v2(const Call& call, size_t at);
  HttpResponse health(const std::string& which) const;
  HttpResponse job(Call& call);
  static void listen(Call& call, const std::shared_ptr<Job>& job, bool with_results);
  HttpResponse begin(Call& call, const std::string& name, bool v2, bool as_job);
  void check_caller(const HttpRequest& request, bool is_health) const;
  answer::Request parse(Call& call);
  void decode(const std::shared_ptr<Call>& call);
  void computed(const std::shared_ptr<Call>& call, std::exception_ptr error, answer::Reply* reply);
  void finish(Call& call, HttpResponse response);
  void stream(Call& call);
  void fail(Call& call, int status, const std::string& why);
  void observe_request(const Call& call);
  void count(const std::string& model, int status);

  ServiceOptions options_;
  Models& models_;
  Computer& computer_;
  Decoders& decoders_;
  Jobs& jobs_;
  Metrics& metrics_;
  std::atomic<bool> ready_ = false, opened_ = false, abandoned_ = false;
};

}  // namespace tessera::serve
