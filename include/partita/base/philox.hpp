#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace partita {

/// Replaces n counters by n draws. c[w][i] is word w of counter i. Each of the ten rounds is a loop over the counters,
/// which vectorizes.
template <std::size_t n>
PARTITA_HOST_DEVICE void philox_rounds(std::array<std::array<std::uint32_t, n>, 4>& c,
                                       std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  constexpr std::uint64_t m0 = 0xD2511F53, m1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t p0 = m0 * c[0][i], p1 = m1 * c[2][i];
      c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ key[0];
      c[1][i] = static_cast<std::uint32_t>(p1);
      c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ key[1];
      c[3][i] = static_cast<std::uint32_t>(p0);
    }
    key = {key[0] + weyl0, key[1] + weyl1};
  }
}

/// Philox4x32-10, a counter-based random number generator (Salmon et al.: Parallel Random Numbers: As Easy as 1, 2, 3,
/// SC'11). Returns 128 random bits that are a pure function of the counter and the key.
PARTITA_HOST_DEVICE inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                               std::array<std::uint32_t, 2> key) {
  std::array<std::array<std::uint32_t, 1>, 4> c{{{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}}};
  philox_rounds(c, key);
  return {c[0][0], c[1][0], c[2][0], c[3][0]};
}

/// Random numbers that depend only on (seed, purpose, step, global index) and not on the rank that asks. So no layout
/// changes the numbers that are drawn. `purpose` separates different uses, e.g. the hash of a layer's or tensor's name.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step = 0);
  /// The numbers of another step.
  PARTITA_HOST_DEVICE Random at_step(std::uint64_t step) const {
    Random other = *this;
    other.step_ = step;
    return other;
  }

  /// Returns 32 random bits.
  std::uint32_t bits(Index i) const;
  /// Returns a number that is uniform in [0, 1), with 53 random bits.
  PARTITA_HOST_DEVICE double uniform(Index i) const {
    const auto bits = philox(counter(i), key_);
    return to_uniform(bits[0], bits[1]);
  }
  /// Returns a standard normal number (Box-Muller).
  double normal(Index i) const;
  /// Fills out[k] with the number of index `first` + k. Faster than single draws: it computes several at a time.
  void uniform(Index first, std::span<double> out) const;
  void normal(Index first, std::span<double> out) const;

 private:
  PARTITA_HOST_DEVICE std::array<std::uint32_t, 4> counter(Index i) const {
    const auto index = static_cast<std::uint64_t>(i);
    return {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
            static_cast<std::uint32_t>(step_), static_cast<std::uint32_t>(step_ >> 32)};
  }
  PARTITA_HOST_DEVICE static double to_uniform(std::uint32_t high, std::uint32_t low) {
    return static_cast<double>((static_cast<std::uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
  }
  static double to_normal(const std::array<std::uint32_t, 4>& bits);
  std::array<std::uint32_t, 2> key_;
  std::uint64_t step_;
};

/// Returns the 64-bit FNV-1a hash of a text.
std::uint64_t hash_text(std::string_view text);

}  // namespace partita
