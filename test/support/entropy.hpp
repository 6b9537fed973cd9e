#pragma once

#include "partita/backend/backend.hpp"

namespace partita::test {

/// Returns the numbers of a cross-entropy whose channels all are here.
inline Tensor entropy_numbers(Backend& backend, const Tensor& x, const Tensor& labels) {
  const Tensor numbers = x.beside(DType::f64, "F", Box(Shape{{'F', 4 * labels.volume()}}), MemoryClass::workspace);
  backend.cross_entropy_maxima(x, numbers, {});
  backend.cross_entropy_sums(x, labels, x.extent('C'), numbers, {});
  return numbers;
}

/// Adds the loss of all rows / count, and the number of right predictions, to `result`.
inline void cross_entropy(Backend& backend, const Tensor& x, const Tensor& labels, double count, const Tensor& result) {
  backend.cross_entropy_loss(entropy_numbers(backend, x, labels), count, result, {});
}

/// dx = scale * the gradient of the loss
inline void cross_entropy_gradient(Backend& backend, const Tensor& x, const Tensor& labels, double scale,
                                   const Tensor& dx) {
  backend.cross_entropy_backward(x, labels, entropy_numbers(backend, x, labels), scale, dx, {});
}

}  // namespace partita::test
