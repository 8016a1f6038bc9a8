// Options of requests, from the `visit` that names the flags of commands.
#pragma once

#include <string>
#include <vector>

#include "answer/request.h"
#include "core/options.h"

namespace tessera::answer {

std::vector<OptionDescription> describe_options(const std::vector<OptionField>& fields);

// Sets the fields that the table `given` names. Throws a usage error for an unknown option, with the nearest name,
// and for a value that the field refuses.
void set_options(const std::vector<OptionField>& fields, const Value& given);

template <class Options>
std::vector<OptionDescription> describe_options() {
  Options options;
  return describe_options(option_fields(options));
}

template <class Options>
Options read_options(const Value& given) {
  Options options;
  set_options(option_fields(options), given);
  return options;
}

// Options of an answer that has none.
struct NoOptions {
  template <class V>
  void visit(V&) {}
};

}  // namespace tessera::answer
