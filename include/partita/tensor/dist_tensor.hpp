#pragma once

#include "partita/base/tensor.hpp"
#include "partita/layouts/layout.hpp"

#include <functional>

namespace partita {

/// A tensor partitioned over a grid: its layout and this rank's part, `local.box() == layout.owned(rank)`.
struct DistTensor {
  Layout layout;
  Tensor local;

  DistTensor() = default;
  /// Zeroed.
  DistTensor(Layout layout, int rank, DType dtype, const std::shared_ptr<Allocator>& allocator, MemoryClass memory);
};

/// Elements of a tensor that are neighbours along its last dimension.
struct Row {
  Index offset, stride;  ///< of the first in memory, and from one to the next
  Index first, length;   ///< the first's row-major index in the global shape; the next has the next
};

/// Calls f for each row of the tensor, in row-major order.
void for_rows(const Tensor& tensor, const Shape& global, const std::function<void(const Row&)>& f);

/// Sets every element to f(i), i its row-major index in the global shape (logical order, N C H W): the same value
/// wherever the element lies, so the content does not depend on the layout.
void fill(const Tensor& tensor, const Shape& global, const std::function<double(Index)>& f);

}  // namespace partita
