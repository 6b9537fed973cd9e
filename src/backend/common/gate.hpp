#pragma once

#include "partita/base/host_device.hpp"

#include <array>

namespace partita {

/// f(a) * b and its gradient, in type A, where F is the function (ActivationFunction).
template <class F, class A>
struct Gate {
  A parameter;
  bool of_value;  ///< the derivative is computed from f(a), else from a

  PARTITA_HOST_DEVICE A value(A a, A b) const { return F::value(a, parameter) * b; }
  /// The derivatives by a and by b, times dy.
  PARTITA_HOST_DEVICE std::array<A, 2> gradient(A a, A b, A dy) const {
    const A f = F::value(a, parameter);
    return {F::gradient(of_value ? f : a, b * dy, parameter), f * dy};
  }
};

}  // namespace partita
