// The one exception type, and the kinds of failure of a program.
//
// A message is one line: the fault, its place (file, key, tensor, sample), and the remedy.
// The library throws; only main prints and exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tessera {

enum class ErrorKind {
  failed,       // the work could not be done: exit code 1
  usage,        // the request itself is wrong (option, recipe key, missing argument): exit code 2
  interrupted,  // SIGINT or SIGTERM, after the state was saved: exit code 130
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind error_kind, const std::string& message) : std::runtime_error(message), kind(error_kind) {}
  ErrorKind kind;
};

// Returns its arguments joined as an output stream would: text("size is ", n, ", must be even").
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(ErrorKind::failed, text(parts...));
}

template <class... Parts>
[[noreturn]] void fail_usage(const Parts&... parts) {
  throw Error(ErrorKind::usage, text(parts...));
}

// Calls fail(...) unless the condition holds. For bad input; use assert for our own mistakes.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) fail(parts...);
}

}  // namespace tessera
