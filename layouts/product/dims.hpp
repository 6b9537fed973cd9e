#pragma once

#include "partita/layouts/product/product.hpp"

#include <utility>

namespace partita {

/// Returns the range [first, last) of the operand's dimensions that form `index`: its first dimension, or all others.
inline std::pair<int, int> dims_of(const ProductOperand& operand, char index) {
  if (operand.indices[0] == index) return {0, 1};
  if (operand.indices[1] == index) return {1, operand.layout.shape().dims()};
  return {0, 0};
}

}  // namespace partita
