#pragma once

#include "partita/base/host_device.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

// Functions of float in loops that compilers turn into vector instructions. libm's are calls, which they do not.

namespace partita {

PARTITA_HOST_DEVICE inline double exponential(double x) { return std::exp(x); }

/// e^x to 2 units in the last place, between e^-87 and e^88, to which smaller and larger results are set. NaN stays.
/// With x = n log 2 + r: e^x = 2^n e^r, where e^r is a polynomial (Moshier, Cephes library, 1992).
PARTITA_HOST_DEVICE inline float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  constexpr float least = -87, most = 88, round = 12582912;  // adding 1.5 * 2^23 rounds to a whole number
  x = x < least ? least : x;
  x = x > most ? most : x;
  const float shifted = x * std::numbers::log2e_v<float> + round, n = shifted - round;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // log 2 in two parts
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const auto power = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;  // the bits of 2^n
  return (p * r * r + r + 1) * std::bit_cast<float>(power);
#endif
}

/// P(X <= x) of a standard normal X.
PARTITA_HOST_DEVICE inline double normal_below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// The same to a relative error of 2e-7 near 0, and of 1e-5 where it is below 1e-40, by a Chebyshev fit of erfc (Press
/// et al., "Numerical Recipes in C", 1992, section 6.2).
PARTITA_HOST_DEVICE inline float normal_below(float x) {
#ifdef __CUDA_ARCH__
  return erfcf(-x / std::numbers::sqrt2_v<float>) / 2;
#else
  constexpr float quarter_root = 0.35355339F;  // sqrt(2) / 4
  const float t = 1 / (1 + std::abs(x) * quarter_root);
  float p = 0.17087277F;
  p = p * t - 0.82215223F;
  p = p * t + 1.48851587F;
  p = p * t - 1.13520398F;
  p = p * t + 0.27886807F;
  p = p * t - 0.18628806F;
  p = p * t + 0.09678418F;
  p = p * t + 0.37409196F;
  p = p * t + 1.00002368F;
  p = p * t - 1.26551223F;
  const float half = t * exponential(p - x * x / 2) / 2;
  return x > 0 ? 1 - half : half;
#endif
}

}  // namespace partita
