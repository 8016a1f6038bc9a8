#include "serve/http.h"

#include <nlohmann/json.hpp>

namespace tessera::serve {

const std::string& HttpRequest::header(const std::string& name) const {
  static const std::string none;
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return none;
}

HttpResponse error_response(int status, const std::string& message) {
  using nlohmann::json;
  return {.status = status,
          .body = json({{"error", message}}).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

const char* refusal_reason(int status) {
  switch (status) {
    case 408:
      return "the request did not arrive in time";
    case 411:
      return "the request has no Content-Length";
    case 413:
      return "the body is longer than this server reads";
    case 429:
      return "too many bytes of other requests are in work";
    case 431:
      return "the header is longer than this server reads";
    default:
      return "the request is no valid HTTP";
  }
}

}  // namespace tessera::serve
