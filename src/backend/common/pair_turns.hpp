#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

#include <cmath>

namespace partita {

/// The angles by which the pairs of a head's channels are turned from one place to the next (Rotation).
struct PairTurns {
  double base;
  Index dim;
  bool back;
  PARTITA_HOST_DEVICE double operator[](Index pair) const {
    const double angle = std::pow(base, -2 * static_cast<double>(pair) / static_cast<double>(dim));
    return back ? -angle : angle;
  }
};

}  // namespace partita
