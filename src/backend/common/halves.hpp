#pragma once

#include "partita/backend/conv_problem.hpp"
#include "partita/device/tensor.hpp"

namespace partita {

/// Returns true if the halves of a batch give the same numbers as the whole. In short types, weight gradients do not:
/// each half would be rounded.
inline bool halves_are_exact(ConvPass pass, DType dtype) {
  return pass != ConvPass::backward_filter || dtype == DType::f64 || dtype == DType::f32;
}

/// Calls conv(x, y) for the first and for the second half of the samples that both tensors hold. Samples that only one
/// of them holds go to the half beside them.
template <class Conv>
void run_halves(const Tensor& x, const Tensor& y, Conv&& conv) {
  const Interval xs = x.box()[0], ys = y.box()[0], both = intersect(xs, ys);
  const Index middle = both.lo + (both.extent() + 1) / 2;
  conv(x.rows({xs.lo, middle}), y.rows({ys.lo, middle}));
  conv(x.rows({middle, xs.hi}), y.rows({middle, ys.hi}));
}

}  // namespace partita
