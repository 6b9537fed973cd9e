#include "partita/base/philox.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace partita {

namespace {

using Words = std::array<std::uint32_t, 4>;

/// Computes out[i] = convert(draw of index first + i), 64 draws at a time.
template <class Counter, class Convert>
void draw_many(Index first, std::span<double> out, std::array<std::uint32_t, 2> key, Counter&& counter,
               Convert&& convert) {
  constexpr std::size_t lanes = 64;
  std::array<std::array<std::uint32_t, lanes>, 4> words;
  for (std::size_t at = 0; at < out.size(); at += lanes) {
    for (std::size_t i = 0; i < lanes; ++i) {
      const Words start = counter(first + static_cast<Index>(at + i));
      for (std::size_t word = 0; word < 4; ++word) words[word][i] = start[word];
    }
    philox_rounds(words, key);
    const std::size_t count = std::min(lanes, out.size() - at);
    for (std::size_t i = 0; i < count; ++i)
      out[at + i] = convert(Words{words[0][i], words[1][i], words[2][i], words[3][i]});
  }
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step) : step_(step) {
  // Philox itself mixes seed and purpose into the 64-bit key.
  const auto mixed = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                             static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(purpose >> 32)},
                            {0, 0});
  key_ = {mixed[0], mixed[1]};
}

std::uint32_t Random::bits(Index i) const { return philox(counter(i), key_)[0]; }

double Random::to_normal(const Words& bits) {
  const double radius = std::sqrt(-2.0 * std::log1p(-to_uniform(bits[0], bits[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_uniform(bits[2], bits[3]));
}

double Random::normal(Index i) const { return to_normal(philox(counter(i), key_)); }

void Random::uniform(Index first, std::span<double> out) const {
  draw_many(
      first, out, key_, [this](Index i) { return counter(i); },
      [](const Words& bits) { return to_uniform(bits[0], bits[1]); });
}

void Random::normal(Index first, std::span<double> out) const {
  draw_many(
      first, out, key_, [this](Index i) { return counter(i); }, to_normal);
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

}  // namespace partita
