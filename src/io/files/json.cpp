#include "io/files/json.h"

#include <set>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace tessera {

template <class Tree>
Tree parse_json(std::string_view document, const std::string& where, const JsonLimits& limits) {
  if (document.size() > limits.max_bytes)
    fail(where, " has ", document.size(), " bytes of JSON, at most ", limits.max_bytes, " are read");
  const auto no_json = [&](size_t byte) { fail(where, " is not JSON: it goes wrong at byte ", byte); };
  // The parser takes a NUL for the end of the text; it must not hide the rest.
  if (const size_t nul = document.find('\0'); nul != std::string_view::npos) no_json(nul + 1);
  std::vector<std::set<std::string>> keys;  // one set per open object
  const auto watch = [&](int depth, typename Tree::parse_event_t event, Tree& value) {
    using Event = typename Tree::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= limits.max_depth) fail(where, ": JSON is nested deeper than ", limits.max_depth);
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto name = value.template get<std::string>();
      if (!keys.back().insert(name).second) fail(where, ": JSON key '", printable(name), "' occurs twice");
      if (keys.back().size() > limits.max_keys)
        fail(where, ": a JSON object has more than ", limits.max_keys, " keys");
    }
    return true;
  };
  try {
    return Tree::parse(document, watch);
  } catch (const typename Tree::parse_error& error) {
    no_json(error.byte);
  } catch (const typename Tree::exception&) {  // a number that no type holds
    fail(where, " is not usable JSON");
  }
  return {};
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace tessera
