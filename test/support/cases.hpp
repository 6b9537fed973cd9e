// The number of cases of randomized tests: in a usual run, with --long, and under a sanitizer.
#pragma once

#include "src/base/plain_text.hpp"

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace partita::test {

#ifdef __has_feature
#define PARTITA_HAS_FEATURE(x) __has_feature(x)
#else
#define PARTITA_HAS_FEATURE(x) 0  // GCC has macros instead
#endif
#if defined(__SANITIZE_THREAD__) || PARTITA_HAS_FEATURE(thread_sanitizer)
constexpr std::uint64_t every = 8;  // of the usual cases, one in 8 runs: any case can show a race
#elif defined(__SANITIZE_ADDRESS__) || PARTITA_HAS_FEATURE(address_sanitizer)
constexpr std::uint64_t every = 4;
#else
constexpr std::uint64_t every = 1;
#endif
constexpr bool sanitized = every > 1;

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

/// Returns how many of the `usual` cases to run; in a short run a share of them.
inline std::uint64_t cases(std::uint64_t usual) { return short_run() ? (usual + every - 1) / every : usual; }
/// Returns the cases of a list to run; in a short run the first.
template <class Case>
std::vector<Case> some(std::vector<Case> all) {
  if (short_run()) all.resize(1);
  return all;
}
/// Returns how many ranks more the next run of a test has; in a short run some numbers of ranks are left out.
inline int ranks_step(int ranks) { return short_run() && ranks > 2 ? 3 : 1; }

}  // namespace partita::test
