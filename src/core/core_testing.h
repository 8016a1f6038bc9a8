// For tests: error messages as strings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace tessera {

// Returns the message of the Error that `body` throws; "" if it throws none. Fails the test if it has several
// lines.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "";
}

// The same for an error of kind usage. Fails the test if it has another kind.
template <class Body>
std::string usage_error_of(const Body& body) {
  return error_of([&] {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage) << error.what();
      throw;
    }
  });
}

}  // namespace tessera
