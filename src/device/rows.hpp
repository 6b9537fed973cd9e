#pragma once

#include "partita/device/tensor.hpp"

#include <functional>

namespace partita {

/// A run of elements that are neighbors along the last dimension.
struct Row {
  Index offset, stride;  ///< of the first element in memory, and the distance between neighbors; in elements
  Index first, length;   ///< row-major index of the first element in the global shape, and the number of elements
};

/// Calls f for each row of the tensor, in row-major order.
void for_rows(const Tensor& tensor, const Shape& global, const std::function<void(const Row&)>& f);

}  // namespace partita
