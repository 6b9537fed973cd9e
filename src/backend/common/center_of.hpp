#pragma once

#include "partita/base/host_device.hpp"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace partita {

/// Returns the leading bits of a mean that A, double or float, holds exactly: all, or 24. The rest of the mean is at
/// most one unit in A's last place. The bits are cut off, since GCC 12 takes a vector of doubles that is converted to
/// float and back for unchanged.
template <class A>
PARTITA_HOST_DEVICE inline double center_of(double mean) {
  if constexpr (std::is_same_v<A, double>) return mean;
  constexpr std::uint64_t beyond_float = (std::uint64_t(1) << 29U) - 1;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(mean) & ~beyond_float);
}

}  // namespace partita
