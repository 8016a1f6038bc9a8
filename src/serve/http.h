// HTTP requests and responses, without a library: the server passes a request, the service responds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tessera::serve {

// An error with its status code.
class HttpError : public Error {
 public:
  HttpError(int code, const std::string& message) : Error(ErrorKind::usage, message), status(code) {}
  int status;
};

struct HttpRequest {
  std::string method, target, body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case

  // Returns the first header of that name (lower case); "" without one.
  const std::string& header(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json", body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};
HttpResponse error_response(int status, const std::string& message);
// Returns the message for a request that is refused before it is read to its end.
const char* refusal_reason(int status);

// One request until its response is sent. All functions may be called from any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Sends the response. Later calls do nothing.
  virtual void reply(HttpResponse response) = 0;
  // Sends the head of a response, then parts of its body; end() completes it. Parts are dropped once the
  // client has disconnected.
  virtual void begin(HttpResponse head) = 0;
  virtual void part(std::string bytes) = 0;
  virtual void end() = 0;
  // Calls `gone` once if the connection closes before the response is complete.
  virtual void on_gone(std::function<void()> gone) = 0;
};

using Handler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

}  // namespace tessera::serve
