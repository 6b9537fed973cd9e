#pragma once

#include "partita/base/error.hpp"
#include "partita/base/tensor.hpp"

namespace partita {

/// Requires the same dtype, dimensions and extents: what element by element kernels work on.
inline void check_alike(const Tensor& x, const Tensor& y) {
  require(x.dtype() == y.dtype() && x.names() == y.names(), "one dtype and the same dimensions");
  for (int d = 0; d < x.box().dims(); ++d) require(x.box().extent(d) == y.box().extent(d), "the same extents");
}

}  // namespace partita
