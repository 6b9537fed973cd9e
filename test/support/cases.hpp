// How long the sweeps are: usual, with --long, and under a sanitizer.
#pragma once

#include <cstdint>
#include <cstdlib>

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

/// Whether the big sweeps are asked for (`test/run.sh --long`).
inline bool lengthy() { return std::getenv("PARTITA_LONG") != nullptr; }

/// A number from the environment, or `otherwise`.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// How many of a sweep's `usual` cases to run: under a sanitizer a quarter, since it runs each five to ten times as long
/// and looks for what every case could show; with --long all, however built.
inline std::uint64_t cases(std::uint64_t usual) { return sanitized && !lengthy() ? (usual + 3) / 4 : usual; }

}  // namespace partita::test
