// The number of cases of randomized tests: in a usual run, with --long, and under a sanitizer.
#pragma once

#include "src/base/plain_text.hpp"

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace partita::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
#else
constexpr bool sanitized = false;
#endif

/// Returns true if the long runs are requested (`test/run.sh --long`).
inline bool lengthy() { return std::getenv("PARTITA_LONG") != nullptr; }

/// Returns the number in environment variable `name`, or `otherwise` if it is not set.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : parse_number<std::uint64_t>(text).value_or(otherwise);
}

/// True under a sanitizer, unless the long runs are requested: each case then takes five to ten times as long, and any
/// case can show the errors that a sanitizer finds.
inline bool short_run() { return sanitized && !lengthy(); }
/// Why a short run leaves out a test.
inline constexpr const char* long_under_sanitizer = "takes a minute under a sanitizer; shorter tests run the same code";

/// Returns how many of the `usual` cases to run; in a short run a quarter of them.
inline std::uint64_t cases(std::uint64_t usual) { return short_run() ? (usual + 3) / 4 : usual; }
/// Returns the cases of a list to run; in a short run the first.
template <class Case>
std::vector<Case> some(std::vector<Case> all) {
  if (short_run()) all.resize(1);
  return all;
}
/// Returns how many ranks more the next run of a test has; in a short run some numbers of ranks are left out.
inline int ranks_step(int ranks) { return short_run() && ranks > 2 ? 3 : 1; }

}  // namespace partita::test
