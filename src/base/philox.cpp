#include "partita/base/philox.hpp"

#include <cmath>
#include <numbers>
#include <string_view>

namespace partita {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t m0 = 0xD2511F53, m1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = m0 * c[0], p1 = m1 * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + weyl0, key[1] + weyl1};
  }
  return c;
}

Random::Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step) : step_(step) {
  // Philox itself mixes seed and purpose into the 64-bit key.
  const auto mixed = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                             static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(purpose >> 32)},
                            {0, 0});
  key_ = {mixed[0], mixed[1]};
}

std::array<std::uint32_t, 4> Random::draw(Index i) const {
  const auto index = static_cast<std::uint64_t>(i);
  return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                 static_cast<std::uint32_t>(step_), static_cast<std::uint32_t>(step_ >> 32)},
                key_);
}

std::uint32_t Random::bits(Index i) const { return draw(i)[0]; }

namespace {

double to_uniform(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace

double Random::uniform(Index i) const {
  const auto bits = draw(i);
  return to_uniform(bits[0], bits[1]);
}

double Random::normal(Index i) const {
  const auto bits = draw(i);
  const double radius = std::sqrt(-2.0 * std::log1p(-to_uniform(bits[0], bits[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_uniform(bits[2], bits[3]));
}

std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

}  // namespace partita
