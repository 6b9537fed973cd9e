#pragma once

#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace partita::test {

/// Returns the message of the Error that `f` throws, or "" if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Returns the message of the exception, of any kind, that `f` throws, or "" if it throws none.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Expects `f` to throw an Error whose message contains each of `parts`.
template <class F>
void expect_error(F&& f, std::initializer_list<std::string_view> parts) {
  const std::string message = error_of(f);
  EXPECT_NE(message, "") << "no error";
  for (const auto part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

}  // namespace partita::test
