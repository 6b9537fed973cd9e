#pragma once

#include "partita/base/box.hpp"

namespace partita {

/// One box that moves between this rank and `peer`, in global coordinates.
struct Transfer {
  int peer = 0;
  Box box;
  bool operator==(const Transfer&) const = default;
};

}  // namespace partita
