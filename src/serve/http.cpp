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

}  // namespace tessera::serve
