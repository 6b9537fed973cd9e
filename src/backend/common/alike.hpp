#pragma once

#include "partita/base/error.hpp"
#include "partita/device/tensor.hpp"

namespace partita {

/// Requires equal dtypes, dimensions and extents, as element-wise kernels need them.
inline void check_alike(const Tensor& x, const Tensor& y) {
  require(x.dtype() == y.dtype() && x.names() == y.names(), "both tensors must have the same dtype and dimensions");
  for (int d = 0; d < x.box().dims(); ++d)
    require(x.box().extent(d) == y.box().extent(d), "both tensors must have the same extents");
}

}  // namespace partita
