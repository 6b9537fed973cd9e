#pragma once

#include "partita/base/host_device.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace partita {

/// Returns one of the two floats next to a number that float does not hold: the one whose last bit is 1. Another
/// rounding, to a type of at most 22 bits, then gives the same as one rounding alone (Boldo and Melquiond, "Emulation
/// of a FMA and Correctly Rounded Sums", 2008).
PARTITA_HOST_DEVICE inline float round_to_odd(double value) {
  const auto near = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(near);
  if (static_cast<double>(near) == value || !std::isfinite(near) || (bits & 1U) != 0) return near;
  const bool is_larger = std::abs(static_cast<double>(near)) > std::abs(value);
  return std::bit_cast<float>(is_larger ? bits - 1 : bits + 1);
}

/// Converts a number to T, with one rounding: Eigen makes a bf16 or f16 of a double by way of a float that is rounded
/// too. An integer type cuts.
template <class T, class Value>
PARTITA_HOST_DEVICE T rounded(Value value) {
  constexpr bool to_half = !std::is_arithmetic_v<T>, fits_float = !std::is_arithmetic_v<Value>;
  if constexpr (to_half && !fits_float && !std::is_same_v<Value, float>)
    return static_cast<T>(round_to_odd(static_cast<double>(value)));
  else
    return static_cast<T>(static_cast<double>(value));
}

}  // namespace partita
