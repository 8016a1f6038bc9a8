#include "serve/service.h"

#include <algorithm>
#include <cmath>

#include "answer/options.h"
#include "core/progress.h"
#include "core/text.h"
#include "serve/bodies.h"
#include "serve/models.h"

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

HttpResponse json_response(const Json& value, int status = 200) {
  return {.status = status, .body = json_line(value)};
}

// Compares in a time that does not depend on the position of the first difference.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

// True for "localhost" and for an address, which no name server can point elsewhere.
bool is_fixed_host(const std::string& host) {
  if (host == "localhost" || host.starts_with('[')) return true;
  return !host.empty() &&
         std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

[[noreturn]] void refuse_method(const std::string& method, const std::string& allowed) {
  throw HttpError(405, "the method is " + printable(method, 20) + ", must be " + allowed);
}

void need_get(const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") refuse_method(request.method, "GET");
}

// Returns the status for an exception while a request is decoded or computed.
int status_of(const std::exception_ptr& error, bool decoding, std::string& message) {
  try {
    std::rethrow_exception(error);
  } catch (const HttpError& one) {
    message = one.what();
    return one.status;
  } catch (const answer::TooLarge& one) {
    message = one.what();
    return 413;
  } catch (const Error& one) {
    message = one.what();
    if (one.kind == ErrorKind::usage) return 400;
    return decoding ? 422 : 500;
  } catch (const std::bad_alloc&) {
    message = "the server has no memory for this request";
    return 503;
  } catch (const std::exception& one) {
    message = printable(one.what(), 500);
    return decoding ? 400 : 500;
  }
}

// The results of one image are an object, those of several images a list.
Json plain_results(answer::Reply& reply) {
  if (reply.results.size() == 1) return std::move(reply.results[0]);
  return {{"results", std::move(reply.results)}};
}

// Returns the single image of a reply if the client prefers it to JSON.
std::optional<HttpResponse> image_response(const answer::Reply& reply, const std::string& accept) {
  if (!accept.starts_with("image/png") || reply.results.size() != 1) return std::nullopt;
  for (const char* key : {"image", "mask"})
    if (const auto found = reply.results[0].find(key);
        found != reply.results[0].end() && found->is_string()) {
      const auto bytes = from_base64(found->get_ref<const std::string&>());
      if (bytes)
        return HttpResponse{.type = "image/png",
                            .body = std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size())};
    }
  return std::nullopt;
}

}  // namespace

struct Service::Call {
  HttpRequest http;
  RequestTarget target;
  std::shared_ptr<Exchange> exchange;
  std::string model = {};  // "" until it is found
  ServedAnswer served = {};
  bool v2 = false, finished = false;
  size_t admitted = 0;  // bytes
  V2Request v2_request = {};
  std::shared_ptr<Job> job = {};
  bool streams = false;  // the response is the job's events
  std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  double began = steady_seconds();
  bool pending = false;  // the response comes later
};

Service::Service(ServiceOptions options, Models& models, Computer& computer, Decoders& decoders, Jobs& jobs,
                 Metrics& metrics)
    : options_(std::move(options)),
      models_(models),
      computer_(computer),
      decoders_(decoders),
      jobs_(jobs),
      metrics_(metrics) {}

void Service::handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
  auto call = std::make_shared<Call>();
  call->http = std::move(request);
  call->exchange = exchange;
  try {
    call->target = parse_target(call->http.target);
    const auto& path = call->target.path;
    check_caller(call->http, std::ranges::find(path, "health") != path.end());
    HttpResponse response = route(*call);
    if (!call->pending) return finish(*call, std::move(response));
  } catch (...) {
    std::string message;
    const int status = status_of(std::current_exception(), /*decoding=*/true, message);
    return fail(*call, status, message);
  }
  if (call->served.answerer) decoders_.run([this, call] { decode(call); });
}

void Service::check_caller(const HttpRequest& request, bool is_health) const {
  const std::string host = host_name(request.header("host"));
  const bool known = options_.any_host || is_fixed_host(host) || std::ranges::count(options_.hosts, host) > 0;
  if (!known)
    throw HttpError(
        403, "Host is '" + printable(host) + "', which this server does not go by: start it with --host");
  if (const std::string& origin = request.header("origin"); !origin.empty()) {
    const size_t scheme = origin.find("://");
    if (scheme == std::string::npos || host_name(origin.substr(scheme + 3)) != host)
      throw HttpError(403, "the request comes from a page of '" + printable(origin) +
                               "', which may not read this server");
  }
  if (options_.token.empty() || is_health) return;
  const std::string& given = request.header("authorization");
  if (given.size() < 7 || lower(given.substr(0, 7)) != "bearer " ||
      !same_secret(std::string_view(given).substr(7), options_.token))
    throw HttpError(401, "the request has no valid token: Authorization: Bearer TOKEN");
}

HttpResponse Service::health(const std::string& which) const {
  if (which == "live") return json_response({{"live", true}});
  if (which != "ready") throw HttpError(404, "there is /health/live and /health/ready");
  return json_response({{"ready", ready_.load()}}, ready_ ? 200 : 503);
}

HttpResponse Service::route(Call& call) {
  const auto& path = call.target.path;
  const bool posts = call.http.method == "POST";
  if (path.size() == 3 && path[0] == "models" && (path[2] == "predict" || path[2] == "jobs")) {
    if (!posts) refuse_method(call.http.method, "POST");
    return begin(call, path[1], /*v2=*/false, path[2] == "jobs");
  }
  const bool versioned = path.size() == 6 && path[3] == "versions";
  if ((path.size() == 4 || versioned) && path[0] == "v2" && path[1] == "models" && path.back() == "infer") {
    if (!posts) refuse_method(call.http.method, "POST");
    if (versioned && path[4] != "1") throw HttpError(404, "there is version 1 only");
    return begin(call, path[2], /*v2=*/true, false);
  }
  if (path.size() >= 2 && path[0] == "jobs") return job(call);
  need_get(call.http);
  return route_get(call);
}

HttpResponse Service::route_get(const Call& call) {
  const auto& path = call.target.path;
  if (path.empty())
    return {.type = "text/plain; charset=utf-8",
            .body = "tessera serve: /models, /openapi.json, /metrics, /health/ready\n"};
  if (path[0] == "health" && path.size() == 2) return health(path[1]);
  if (path[0] == "v2") return route_v2(call, 1);
  if (path[0] == "metrics" && path.size() == 1) {
    computer_.measure_queues();
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text()};
  }
  if (path[0] == "openapi.json" && path.size() == 1)
    return json_response(openapi_document(*models_.table(), options_.version));
  if (path[0] == "models" && path.size() == 2)
    return json_response(description_json(path[1], models_.find(path[1]).answerer->description()));
  if (path[0] != "models" || path.size() != 1)
    throw HttpError(404, "there is no '" + printable(call.http.target) + "': see /openapi.json");
  Json list = Json::array();
  for (const auto& [name, served] : *models_.table())
    list.push_back(description_json(name, served.answerer->description()));
  return json_response({{"models", list}});
}

HttpResponse Service::route_v2(const Call& call, size_t at) {
  const auto& path = call.target.path;
  if (path.size() == at)
    return json_response(
        {{"name", "tessera"}, {"version", options_.version}, {"extensions", {"binary_tensor_data"}}});
  if (path[at] == "health" && path.size() == at + 2) return health(path[at + 1]);
  if (path[at] != "models" || path.size() < at + 2)
    throw HttpError(404, "there is no '" + printable(call.http.target) + "' in V2");
  std::vector<std::string> rest(path.begin() + static_cast<std::ptrdiff_t>(at) + 2, path.end());
  if (rest.size() >= 2 && rest[0] == "versions") {
    if (rest[1] != "1") throw HttpError(404, "there is version 1 only");
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  const std::string& name = path[at + 1];
  const ServedAnswer served = models_.find(name);
  if (rest.empty()) return json_response(v2_metadata(name, served.answerer->description()));
  if (rest.size() == 1 && rest[0] == "ready")
    return json_response({{"ready", ready_.load()}}, ready_ ? 200 : 503);
  throw HttpError(404, "there is no '" + printable(call.http.target) + "' in V2");
}

void Service::listen(Call& call, const std::shared_ptr<Job>& job, bool with_results) {
  job->listen(call.exchange, with_results);
  call.exchange->on_gone([job, weak = std::weak_ptr(call.exchange)] {
    if (const auto exchange = weak.lock()) job->leave(exchange);
  });
}

HttpResponse Service::job(Call& call) {
  const auto& path = call.target.path;
  const std::shared_ptr<Job> job = jobs_.find(path[1]);
  if (path.size() == 3 && path[2] == "events") {
    need_get(call.http);
    call.pending = true;
    count("", 200);
    listen(call, job, /*with_results=*/false);
    return {};
  }
  if (path.size() != 2) throw HttpError(404, "a job has /jobs/ID and /jobs/ID/events");
  if (call.http.method == "DELETE") {
    job->cancel();
    return {.status = 202, .body = job->status(false) + "\n"};
  }
  if (call.http.method != "GET") refuse_method(call.http.method, "GET or DELETE");
  return {.body = job->status(true) + "\n", .headers = {{"Cache-Control", "no-store"}}};
}

HttpResponse Service::begin(Call& call, const std::string& name, bool v2, bool as_job) {
  call.served = models_.find(name);
  call.model = name, call.v2 = v2;
  call.streams = !as_job && !v2 && call.http.header("accept").starts_with("text/event-stream");
  if (!opened_) throw HttpError(503, "the server is loading");
  if (!ready_ && (as_job || call.streams)) throw HttpError(503, "the server is ending: it begins no job");
  const size_t bytes = call.http.body.size();
  if (!computer_.admit(call.served.queue, bytes)) {
    HttpResponse busy = error_response(429, "the queue of model '" + name + "' is full");
    const double seconds = std::ceil(computer_.expected_seconds(call.served.queue));
    busy.headers.emplace_back("Retry-After",
                              std::to_string(static_cast<int64_t>(std::clamp(seconds, 1.0, 600.0))));
    call.served.answerer = nullptr;
    return busy;
  }
  call.admitted = bytes;
  call.pending = true;
  try {
    if (as_job || call.streams) call.job = jobs_.add(name);
  } catch (...) {
    computer_.withdraw(call.served.queue, bytes);
    throw;
  }
  if (!as_job) call.exchange->on_gone([gone = call.gone] { *gone = true; });
  return {};
}

answer::Request Service::parse(Call& call) {
  try {
    const std::string body = inflated_body(call.http, options_.body_bytes);
    call.http.body = {};
    if (!call.v2) return parse_plain(call.http, body, call.target);
    const std::string& length = call.http.header("inference-header-content-length");
    const auto json_bytes = length.empty() ? std::optional<int64_t>(-1) : parse_int(length);
    if (!json_bytes || (!length.empty() && *json_bytes < 0))
      fail_usage("Inference-Header-Content-Length is '", printable(length), "', must be a number of bytes");
    call.v2_request = parse_v2(body, *json_bytes);
    return std::move(call.v2_request.request);
  } catch (const HttpError&) {
    throw;
  } catch (const answer::TooLarge&) {
    throw;
  } catch (const Error& error) {
    throw HttpError(400, error.what());
  }
}

void Service::decode(const std::shared_ptr<Call>& call) {
  const double began = steady_seconds();
  Work work;
  work.answerer = call->served.answerer;
  try {
    if (*call->gone) throw HttpError(503, "the caller is gone");
    work.prepared = work.answerer->prepare(parse(*call));
  } catch (...) {
    computer_.withdraw(call->served.queue, call->admitted);
    std::string message;
    const int status = status_of(std::current_exception(), /*decoding=*/true, message);
    return fail(*call, status, message);
  }
  metrics_.observe("tessera_stage_seconds", "Seconds of a request in a stage.",
                   {{"model", call->model}, {"stage", "decode"}}, steady_seconds() - began,
                   Metrics::seconds_bounds());
  work.control =
      call->job ? call->job->control()
                : answer::Control{.cancelled = [this, gone = call->gone] { return *gone || abandoned_; }};
  work.deadline = call->job ? 1e300 : call->began + options_.request_seconds;
  work.done = [this, call](std::exception_ptr error, answer::Reply* reply) {
    computed(call, std::move(error), reply);
  };
  if (call->streams)
    stream(*call);
  else if (call->job)
    finish(*call, {.status = 202,
                   .body = call->job->status(false) + "\n",
                   .headers = {{"Location", "/jobs/" + call->job->id()}}});
  if (!computer_.push(call->served.queue, call->admitted, std::move(work)))
    fail(*call, 429, "the queue of model '" + call->model + "' has no room for this request");
}

// Called by the computing thread, so encoding is left to the decoders.
void Service::computed(const std::shared_ptr<Call>& call, std::exception_ptr error, answer::Reply* reply) {
  std::string message;
  if (error) {
    const int status = status_of(error, /*decoding=*/false, message);
    return fail(*call, status, message);
  }
  decoders_.run([this, call, whole = std::make_shared<answer::Reply>(std::move(*reply))] {
    try {
      if (call->job) {
        if (call->streams) observe_request(*call);
        return call->job->finish(plain_results(*whole).dump(-1, ' ', false, Json::error_handler_t::replace));
      }
      if (!call->v2) {
        if (auto image = image_response(*whole, call->http.header("accept")))
          return finish(*call, std::move(*image));
        return finish(*call, json_response(plain_results(*whole)));
      }
      V2Reply v2 = write_v2(call->model, call->v2_request, *whole);
      HttpResponse response{.body = std::move(v2.body)};
      if (v2.json_bytes >= 0) {
        response.type = "application/octet-stream";
        response.headers.emplace_back("Inference-Header-Content-Length", std::to_string(v2.json_bytes));
      }
      finish(*call, std::move(response));
    } catch (...) {
      std::string why;
      const int status = status_of(std::current_exception(), /*decoding=*/true, why);
      fail(*call, status, why);
    }
  });
}

void Service::finish(Call& call, HttpResponse response) {
  if (std::exchange(call.finished, true)) return;
  count(call.model, response.status);
  observe_request(call);
  call.exchange->reply(std::move(response));
}

void Service::observe_request(const Call& call) {
  if (call.model.empty()) return;
  metrics_.observe("tessera_request_seconds",
                   "Seconds from a whole request to its response, or the end of its stream.",
                   {{"model", call.model}}, steady_seconds() - call.began, Metrics::seconds_bounds());
}

// The response is the events of the call's own job.
void Service::stream(Call& call) {
  call.finished = true;
  count(call.model, 200);
  listen(call, call.job, /*with_results=*/true);
}

void Service::fail(Call& call, int status, const std::string& why) {
  const std::string message =
      call.served.answerer ? answer::in_request_words(why, call.served.answerer->description()) : why;
  if (call.streams && call.finished) observe_request(call);
  if (call.job) call.job->fail(message);
  HttpResponse response = error_response(status, message);
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 405) response.headers.emplace_back("Allow", message.substr(message.rfind("be ") + 3));
  finish(call, std::move(response));
}

void Service::count(const std::string& model, int status) {
  metrics_.count("tessera_requests_total", "Requests by model and status.",
                 {{"model", model}, {"status", std::to_string(status)}});
}

}  // namespace tessera::serve
