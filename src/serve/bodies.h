// Targets and bodies of requests: URIs; images as raw bytes, in forms (multipart/form-data, RFC 7578) or in
// JSON as base64. Free of LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/request.h"
#include "serve/http.h"

namespace tessera::serve {

// The path and query of a URI.
struct RequestTarget {
  std::vector<std::string> path;                           // decoded segments
  std::vector<std::pair<std::string, std::string>> query;  // decoded names and values
};

// Parses a target in origin form, "/v2/models?a=b". Throws a usage error for any other form, for more than
// 2048 bytes, for NUL, and for invalid UTF-8.
RequestTarget parse_target(std::string_view target);

// Returns the name in a Host header without its port, in lower case: "localhost", "[::1]".
std::string host_name(std::string_view host);

struct FormPart {
  std::string name, file, type;  // from Content-Disposition and Content-Type; "" without one
  std::string_view content;      // within the body
};

// Returns the boundary of a Content-Type; "" if it is not that of a form.
std::string boundary_of(std::string_view content_type);

// Splits a body at its boundary. Throws a usage error if a delimiter, a header or the end is missing, for more than
// 64 parts, and for headers of more than 4096 bytes.
std::vector<FormPart> parse_multipart(std::string_view body, std::string_view boundary);

// Returns a parameter of a header value, as `name` of `form-data; name="image"`; "" without it.
std::string header_parameter(std::string_view value, std::string_view name);

// Inflates a body with Content-Encoding gzip. Throws a 413 for more than `most` bytes, a 415 for another encoding.
std::string inflated_body(const HttpRequest& request, uint64_t most);

// Reads the body of POST /models/NAME/predict or jobs: an encoded image; a form with part `image`, and
// options as other parts; a JSON object with `image` in base64 and options. Options may also be in the query.
// Throws a 415 for another type.
answer::Request parse_plain(const HttpRequest& request, const std::string& body, const RequestTarget& target);

}  // namespace tessera::serve
