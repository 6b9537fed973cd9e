#include "partita/base/philox.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace partita {

namespace {

using Words = std::array<std::uint32_t, 4>;

/// Applies one of the ten rounds to n counters, in place. The loop over the counters vectorizes.
template <std::size_t n>
void round(std::array<std::array<std::uint32_t, n>, 4>& c, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint64_t m0 = 0xD2511F53, m1 = 0xCD9E8D57;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t p0 = m0 * c[0][i], p1 = m1 * c[2][i];
    c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ key0;
    c[1][i] = static_cast<std::uint32_t>(p1);
    c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ key1;
    c[3][i] = static_cast<std::uint32_t>(p0);
  }
}

/// Replaces n counters by n draws. c[w][i] is word w of counter i.
template <std::size_t n>
void philox_rounds(std::array<std::array<std::uint32_t, n>, 4>& c, std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (int i = 0; i < 10; ++i) {
    round(c, key[0], key[1]);
    key = {key[0] + weyl0, key[1] + weyl1};
  }
}

}  // namespace

Words philox(Words counter, std::array<std::uint32_t, 2> key) {
  std::array<std::array<std::uint32_t, 1>, 4> c{{{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}}};
  philox_rounds(c, key);
  return {c[0][0], c[1][0], c[2][0], c[3][0]};
}

Random::Random(std::uint64_t seed, std::uint64_t purpose, std::uint64_t step) : step_(step) {
  // Philox itself mixes seed and purpose into the 64-bit key.
  const auto mixed = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                             static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(purpose >> 32)},
                            {0, 0});
  key_ = {mixed[0], mixed[1]};
}

Words Random::counter(Index i) const {
  const auto index = static_cast<std::uint64_t>(i);
  return {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), static_cast<std::uint32_t>(step_),
          static_cast<std::uint32_t>(step_ >> 32)};
}

std::uint32_t Random::bits(Index i) const { return philox(counter(i), key_)[0]; }

namespace {

double to_uniform(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

double to_normal(const Words& bits) {
  const double radius = std::sqrt(-2.0 * std::log1p(-to_uniform(bits[0], bits[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_uniform(bits[2], bits[3]));
}

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

double Random::uniform(Index i) const {
  const auto bits = philox(counter(i), key_);
  return to_uniform(bits[0], bits[1]);
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

std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

}  // namespace partita
