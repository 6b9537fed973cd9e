#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// Philox4x32-10, a counter-based generator (Salmon et al.: Parallel Random Numbers: As Easy as 1, 2, 3, SC'11):
/// 128 random bits that are a pure function of a counter and a key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Random numbers by name: each is a pure function of (seed, purpose, step, global index), whoever asks for it, so that
/// no layout changes what is drawn. `purpose` tells uses apart (hash of a layer's or a tensor's name).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step = 0);

  /// 32 random bits.
  std::uint32_t bits(Index i) const;
  /// Uniform in [0, 1), 53 bits.
  double uniform(Index i) const;
  /// Standard normal (Box-Muller).
  double normal(Index i) const;
  /// The same of out.size() indices in a row, from `first` on: several at a time.
  void uniform(Index first, std::span<double> out) const;
  void normal(Index first, std::span<double> out) const;

 private:
  std::array<std::uint32_t, 4> counter(Index i) const;
  std::array<std::uint32_t, 2> key_;
  std::uint64_t step_;
};

/// 64-bit FNV-1a hash of a text.
std::uint64_t hash(std::string_view text);

}  // namespace partita
