#include "data/source_json.h"

#include <set>
#include <vector>

#include "core/error.h"

namespace tessera::data {

nlohmann::json parse_json(std::string_view document, const std::string& name, const JsonLimits& limits) {
  using nlohmann::json;
  if (document.size() > limits.max_bytes)
    fail(name, " has ", document.size(), " bytes of JSON, at most ", limits.max_bytes, " are read");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= limits.max_depth) fail(name, ": JSON is nested deeper than ", limits.max_depth);
      if (event == json::parse_event_t::object_start) keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail(name, ": JSON key '", value.get<std::string>(), "' stands twice");
    }
    return true;
  };
  try {
    return json::parse(document, watch);
  } catch (const json::parse_error& error) {
    fail(name, " is not JSON: it goes wrong at byte ", error.byte);
  } catch (const json::exception& error) {
    fail(name, " is not usable JSON");
  }
}

}  // namespace tessera::data
