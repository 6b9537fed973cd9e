#pragma once

#include "partita/base/box.hpp"

namespace partita {

/// A box, in global coordinates, that moves between this rank and `peer`.
struct Transfer {
  int peer = 0;
  Box box;
  bool operator==(const Transfer&) const = default;
};

}  // namespace partita
