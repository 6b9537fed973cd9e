#pragma once

#include "partita/backend/labels.hpp"
#include "partita/base/error.hpp"

namespace partita {

/// Checks the labels of a loss of x, and returns their number.
inline Index rows_of(const Tensor& x, const Labels& labels) {
  const Index rows = labels.of.volume();
  require(labels.of.dtype() == DType::i32 && x.find('C') == 1 && rows * x.extent('C') == x.volume(),
          "there must be one label per row of channels");
  require(!labels.weights || (labels.weights.dtype() == DType::f64 && labels.weights.volume() == labels.classes),
          "there must be one weight per class");
  return rows;
}
/// The same, for a cross-entropy with its numbers.
inline Index entropy_rows_of(const Tensor& x, const Tensor& numbers, const Labels& labels) {
  const Index rows = rows_of(x, labels);
  require(numbers.dtype() == DType::f64 && numbers.volume() == labels.numbers() * rows,
          "there must be Labels::numbers() numbers for each row of channels");
  return rows;
}

}  // namespace partita
