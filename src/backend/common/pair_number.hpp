#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

namespace partita {

/// The number of a pair of vectors i and j, which differ: pairs are in the order of the larger number, then of the
/// smaller one (Backend::interact_forward).
PARTITA_HOST_DEVICE constexpr Index pair_number(Index i, Index j) {
  return i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i;
}

}  // namespace partita
