// The target of a request: path and query of a URI.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::serve {

struct RequestTarget {
  std::vector<std::string> path;                           // decoded segments
  std::vector<std::pair<std::string, std::string>> query;  // decoded names and values
};

// Parses a target in origin form, "/v2/models?a=b". Throws a usage error for any other, for more than 2048 bytes,
// and for bytes that are not UTF-8 or NUL.
RequestTarget parse_target(std::string_view target);

// Returns the name in a Host header without its port, in lower case: "localhost", "[::1]".
std::string host_name(std::string_view host);

}  // namespace tessera::serve
