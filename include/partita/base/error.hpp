#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace partita {

/// A mistake of the user. The message is one clear sentence with the user's own names and with a remedy.
/// If every rank throws it, before any communication or as AgreedError, it is printed once and the exit status is 2.
/// If a single rank throws it, e.g. because a data file is damaged in the middle of training, the whole job ends.
/// If nobody catches it, the process prints the message once and ends with exit status 2.
class Error : public std::runtime_error {
 public:
  /// A NUL in the text, from a name that the user wrote, becomes a backslash and u0000. Otherwise it would end the
  /// message.
  explicit Error(std::string text);
};

/// A device, or the messages between devices, failed during a run. It is not a mistake of the user, and the job cannot
/// go on. If nobody catches it, the exit status is 3.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

/// A location in the source. As a default argument, `here()` gives the location of the caller. It replaces
/// std::source_location, which Clang 14 lacks.
struct Where {
  const char* file;
  int line;
  const char* function;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                              const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

/// Ends the process because of a bug in the code, not a mistake of the user. Prints `what` and the source location.
[[noreturn]] void broken(std::string_view what, Where where = Where::here());

/// Checks an invariant of our own code, in every build type; `what` states the invariant. Use Error for whatever a user
/// can cause.
inline void require(bool holds, std::string_view what, Where where = Where::here()) {
  if (!holds) broken(what, where);
}

/// Returns " (did you mean 'name'?)" with the candidate that is nearest to `word` by edit distance, or "" if no
/// candidate is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// Returns e.g. "1 stage" or "2 stages". `ending` is the ending of the plural.
std::string counted(std::int64_t count, std::string_view noun, std::string_view ending = "s");

/// Returns `items` in single quotes, joined by ", ".
std::string quoted_list(std::span<const std::string> items);

}  // namespace partita
