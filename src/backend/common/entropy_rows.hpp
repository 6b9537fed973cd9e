#pragma once

#include "partita/base/error.hpp"
#include "partita/device/tensor.hpp"

namespace partita {

/// Returns the number of rows of a cross-entropy, from its four numbers for each row of x.
inline Index entropy_rows_of(const Tensor& x, const Tensor& numbers) {
  const Index rows = numbers.volume() / 4;
  require(numbers.dtype() == DType::f64 && x.find('C') == 1 && rows * x.extent('C') == x.volume(),
          "there must be four numbers for each row of channels");
  return rows;
}
/// The same, with a label for each row.
inline Index entropy_rows_of(const Tensor& x, const Tensor& numbers, const Tensor& labels) {
  const Index rows = entropy_rows_of(x, numbers);
  require(labels.dtype() == DType::i32 && labels.volume() == rows, "there must be one label per row of channels");
  return rows;
}

}  // namespace partita
