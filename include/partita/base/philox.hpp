#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// Philox4x32-10, a counter-based random number generator (Salmon et al.: Parallel Random Numbers: As Easy as 1, 2, 3,
/// SC'11). Returns 128 random bits that are a pure function of the counter and the key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Random numbers that depend only on (seed, purpose, step, global index) and not on the rank that asks. So no layout
/// changes the numbers that are drawn. `purpose` separates different uses, e.g. the hash of a layer's or tensor's name.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step = 0);

  /// Returns 32 random bits.
  std::uint32_t bits(Index i) const;
  /// Returns a number that is uniform in [0, 1), with 53 random bits.
  double uniform(Index i) const;
  /// Returns a standard normal number (Box-Muller).
  double normal(Index i) const;
  /// Fills out[k] with the number of index `first` + k. Faster than single draws: it computes several at a time.
  void uniform(Index first, std::span<double> out) const;
  void normal(Index first, std::span<double> out) const;

 private:
  std::array<std::uint32_t, 4> counter(Index i) const;
  std::array<std::uint32_t, 2> key_;
  std::uint64_t step_;
};

/// Returns the 64-bit FNV-1a hash of a text.
std::uint64_t hash(std::string_view text);

}  // namespace partita
