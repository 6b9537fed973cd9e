#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace partita {

/// What a user did that cannot be: one clear sentence with the names that he used and what would be right.
/// Thrown before any communication, or as AgreedError alike on every rank, it is printed once (exit status 2); by one rank alone,
/// as of a data set's damaged file in the middle of training, it takes the job down.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error with a formatted sentence.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

/// A place in the source; a default argument names the caller's. (std::source_location, which Clang 14 lacks.)
struct Where {
  const char* file;
  int line;
  const char* function;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                              const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

/// Ends the process because the code, not the user, is wrong: prints `what` and where.
[[noreturn]] void broken(std::string_view what, Where where = Where::here());

/// Checks an invariant of our own code in every build; use Error for what a user can cause.
inline void require(bool holds, std::string_view what, Where where = Where::here()) {
  if (!holds) broken(what, where);
}

/// " (did you mean 'name'?)" with the candidate nearest to `word` by edit distance, or "" if none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// "1 stage", "2 stages", or another ending of the plural.
std::string counted(std::int64_t count, std::string_view noun, std::string_view ending = "s");

/// `items` joined by ", ", each in quotes.
std::string quoted_list(std::span<const std::string> items);

}  // namespace partita
