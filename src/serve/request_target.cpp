#include "serve/bodies.h"

#include <boost/url/parse.hpp>
#include <boost/url/src.hpp>
#include <boost/url/url_view.hpp>

#include "core/error.h"
#include "core/text.h"

namespace tessera::serve {
namespace {

constexpr size_t kMostBytes = 2048;

// Returns a decoded part of a target.
std::string checked(std::string part, std::string_view target) {
  if (!is_utf8(part) || part.find('\0') != std::string::npos)
    fail_usage("the target '", printable(target), "' has bytes that are no text");
  return part;
}

}  // namespace

RequestTarget parse_target(std::string_view target) {
  if (target.size() > kMostBytes)
    fail_usage("the target has ", target.size(), " bytes, must have at most ", kMostBytes);
  const auto parsed = boost::urls::parse_origin_form({target.data(), target.size()});
  if (!parsed) fail_usage("the target '", printable(target), "' is no path of a URI");
  RequestTarget out;
  for (const auto& segment : parsed->segments())
    out.path.push_back(checked(std::string(segment.data(), segment.size()), target));
  for (const auto& param : parsed->params())
    out.query.emplace_back(checked(std::string(param.key.data(), param.key.size()), target),
                           checked(std::string(param.value.data(), param.value.size()), target));
  if (!out.path.empty() && out.path.back().empty()) out.path.pop_back();  // a slash at the end
  return out;
}

std::string host_name(std::string_view host) {
  const size_t bracket = host.find(']'), colon = host.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket))
    host = host.substr(0, colon);
  return lower(host);
}

}  // namespace tessera::serve
