#pragma once

#include "partita/device/tensor.hpp"
#include "partita/layouts/layout.hpp"

#include <functional>

namespace partita {

/// A tensor partitioned over a grid: its layout and this rank's part, with `local.box() == layout.owned(rank)`.
struct DistTensor {
  Layout layout;
  Tensor local;

  DistTensor() = default;
  /// Allocates this rank's part and fills it with zeros.
  DistTensor(Layout layout, int rank, DType dtype, const std::shared_ptr<Allocator>& allocator, MemoryClass memory);
};

/// Sets every element to f(i), where i is its row-major index in the global shape (logical order, N C H W). The value
/// of an element does not depend on the layout.
void fill(const Tensor& tensor, const Shape& global, const std::function<double(Index)>& f);

}  // namespace partita
