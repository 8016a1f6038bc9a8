#include "serve/bodies.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::serve {
namespace {

constexpr size_t kMostParts = 64, kMostHeaderBytes = 4096, kMostBoundary = 70;

// Reads the quoted text at the front of `rest`, after its quote.
std::string quoted(std::string_view rest) {
  std::string out;
  for (size_t i = 0; i < rest.size() && rest[i] != '"'; ++i) {
    if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
    out += rest[i];
  }
  return out;
}

void read_part_headers(std::string_view headers, FormPart& part) {
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(headers.size(), end + 2));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) fail_usage("a part of the form has a header without a colon");
    const std::string name = lower(trim(line.substr(0, colon)));
    const std::string_view value = trim(line.substr(colon + 1));
    if (name == "content-disposition") {
      part.name = header_parameter(value, "name");
      part.file = header_parameter(value, "filename");
    } else if (name == "content-type") {
      part.type = lower(value);
    }
  }
}

}  // namespace

std::string header_parameter(std::string_view value, std::string_view name) {
  bool in_quotes = false;
  for (size_t i = 0; i < value.size(); ++i) {
    if (in_quotes && value[i] == '\\') {
      ++i;
      continue;
    }
    if (value[i] == '"') in_quotes = !in_quotes;
    if (in_quotes || value[i] != ';') continue;
    const std::string_view rest = trim(value.substr(i + 1));
    if (rest.size() <= name.size() || lower(rest.substr(0, name.size())) != name || rest[name.size()] != '=')
      continue;
    const std::string_view content = rest.substr(name.size() + 1);
    if (content.starts_with('"')) return quoted(content.substr(1));
    return std::string(trim(content.substr(0, content.find(';'))));
  }
  return "";
}

std::string boundary_of(std::string_view content_type) {
  if (!lower(content_type).starts_with("multipart/form-data")) return "";
  return header_parameter(content_type, "boundary");
}

std::vector<FormPart> parse_multipart(std::string_view body, std::string_view boundary) {
  if (boundary.empty() || boundary.size() > kMostBoundary)
    fail_usage("the boundary of the form has ", boundary.size(), " bytes, must have 1 to ", kMostBoundary);
  const std::string delimiter = "\r\n--" + std::string(boundary);
  if (!body.starts_with(std::string_view(delimiter).substr(2)))
    fail_usage("the form does not begin with its boundary");
  std::string_view rest = body.substr(delimiter.size() - 2);
  std::vector<FormPart> parts;
  while (!rest.starts_with("--")) {
    if (!rest.starts_with("\r\n")) fail_usage("the boundary of the form is followed by other bytes");
    if (parts.size() == kMostParts) fail_usage("the form has more than ", kMostParts, " parts");
    rest.remove_prefix(2);
    const size_t head = rest.starts_with("\r\n") ? 0 : rest.substr(0, kMostHeaderBytes).find("\r\n\r\n");
    if (head == std::string_view::npos)
      fail_usage("part ", parts.size(), " of the form has no end of its headers within ", kMostHeaderBytes,
                 " bytes");
    FormPart& part = parts.emplace_back();
    read_part_headers(rest.substr(0, head), part);
    rest.remove_prefix(head == 0 && rest.starts_with("\r\n") ? 0 : head + 2);  // before the last line end
    const size_t end = rest.find(delimiter);
    if (end == std::string_view::npos) fail_usage("part ", parts.size() - 1, " of the form has no end");
    part.content = end < 2 ? std::string_view() : rest.substr(2, end - 2);
    rest.remove_prefix(end + delimiter.size());
  }
  return parts;
}

}  // namespace tessera::serve
