#pragma once

#include "partita/backend/backend.hpp"

namespace partita::test {

/// The labels of x, all of which count alike.
inline Labels labels_of(const Tensor& x, const Tensor& labels) {
  const Index classes = x.extent('C');
  return {.of = labels, .classes = classes, .sum_of_weights = static_cast<double>(classes)};
}

/// Returns the numbers of a cross-entropy whose channels all are here.
inline Tensor entropy_numbers(Backend& backend, const Tensor& x, const Labels& labels) {
  const Tensor numbers =
      x.beside(DType::f64, "F", Box(Shape{{'F', labels.numbers() * labels.of.volume()}}), MemoryClass::workspace);
  backend.cross_entropy_maxima(x, labels, numbers, {});
  backend.cross_entropy_sums(x, labels, numbers, {});
  return numbers;
}

/// Adds the loss of all rows / count, and the number of right predictions, to `result`.
inline void cross_entropy(Backend& backend, const Tensor& x, const Labels& labels, double count, const Tensor& result) {
  backend.cross_entropy_loss(labels, entropy_numbers(backend, x, labels), count, result, {});
}
inline void cross_entropy(Backend& backend, const Tensor& x, const Tensor& labels, double count, const Tensor& result) {
  cross_entropy(backend, x, labels_of(x, labels), count, result);
}

/// dx = scale * the gradient of the loss
inline void cross_entropy_gradient(Backend& backend, const Tensor& x, const Labels& labels, double scale,
                                   const Tensor& dx) {
  backend.cross_entropy_backward(x, labels, entropy_numbers(backend, x, labels), scale, dx, {});
}
inline void cross_entropy_gradient(Backend& backend, const Tensor& x, const Tensor& labels, double scale,
                                   const Tensor& dx) {
  cross_entropy_gradient(backend, x, labels_of(x, labels), scale, dx);
}

}  // namespace partita::test
