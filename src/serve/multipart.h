// Bodies of forms: multipart/form-data (RFC 7578).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::serve {

struct FormPart {
  std::string name, file, type;  // of Content-Disposition and Content-Type; "" without one
  std::string_view content;      // within the body
};

// Returns the boundary of a Content-Type; "" if it is none of a form.
std::string boundary_of(std::string_view content_type);

// Splits a body at its boundary. Throws a usage error if a delimiter, a header or the end is missing, for more than
// 64 parts, and for headers of more than 4096 bytes.
std::vector<FormPart> parse_multipart(std::string_view body, std::string_view boundary);

// Returns a parameter of a header value, as `name` of `form-data; name="image"`; "" without it.
std::string header_parameter(std::string_view value, std::string_view name);

}  // namespace tessera::serve
