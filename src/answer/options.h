// Options of requests, from the same `visit` that names the flags of commands.
#pragma once

#include <string>
#include <vector>

#include "answer/request.h"
#include "core/options.h"

namespace tessera::answer {

std::vector<OptionDescription> describe_options(const std::vector<OptionField>& fields);

// Sets the fields that are keys of the table `given`. Throws a usage error for an unknown option, with the
// nearest name, and for an invalid value.
void set_options(const std::vector<OptionField>& fields, const Value& given);

// Returns the fields of a request: beams have a smaller range than on a command line, since their memory is that of all
// callers.
std::vector<OptionField> request_fields(std::vector<OptionField> fields);

// Returns a message with the names of a request instead of the flags of the command line: "option 'top_p'" for
// "--top-p", "input 'image'" for "--image".
std::string in_request_words(const std::string& message, const Description& description);

template <class Options>
std::vector<OptionDescription> describe_options() {
  Options options;
  return describe_options(request_fields(option_fields(options)));
}

template <class Options>
Options read_options(const Value& given) {
  Options options;
  set_options(request_fields(option_fields(options)), given);
  return options;
}

// For answers without options.
struct NoOptions {
  template <class V>
  void visit(V&) {}
};

}  // namespace tessera::answer
