// --json of commands that write files: one object that names the written files.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

namespace tessera::cli {

template <class V>
void visit_json(V& v, bool& json) {
  v("json", json, "one JSON object on standard output; lines for people then go to standard error");
}
// Returns the stream for lines for people: standard output, or standard error if --json takes that.
std::ostream& people(bool json);
// Prints the outcome of a command if `json`.
void print_outcome(bool json, const nlohmann::ordered_json& outcome);

}  // namespace tessera::cli
