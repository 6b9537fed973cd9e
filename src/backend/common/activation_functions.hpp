#pragma once

#include "partita/base/activation.hpp"
#include "partita/base/host_device.hpp"
#include "src/backend/common/exponential.hpp"

#include <cmath>
#include <numbers>

namespace partita {

/// f(x), and f'(x) * dy computed from the value that was kept: y = f(x) if that suffices, else x. `p` is the parameter
/// of the function.
template <Activation::Kind kind>
struct ActivationFunction;

// The comparisons are written so that NaN propagates.
template <>
struct ActivationFunction<Activation::Kind::relu> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A) {
    return x < A(0) ? A(0) : x;
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A y, A dy, A) {
    return y <= A(0) ? A(0) : dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::leaky_relu> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A p) {
    return x < A(0) ? p * x : x;
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A y, A dy, A p) {
    return y > A(0) ? dy : p * dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::elu> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A p) {
    return x < A(0) ? p * std::expm1(x) : x;
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A y, A dy, A p) {
    return y > A(0) ? dy : (y + p) * dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::sigmoid> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A) {
    return 1 / (1 + exponential(-x));
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A y, A dy, A) {
    return y * (1 - y) * dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::tanh> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A) {
    return std::tanh(x);
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A y, A dy, A) {
    return (1 - y * y) * dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::gelu> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A) {
    return x * normal_below(x);
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A x, A dy, A) {
    const A density = exponential(-x * x / 2) * std::numbers::inv_sqrtpi_v<A> / std::numbers::sqrt2_v<A>;
    return (normal_below(x) + x * density) * dy;
  }
};

template <>
struct ActivationFunction<Activation::Kind::silu> {
  template <class A>
  PARTITA_HOST_DEVICE static A value(A x, A) {
    return x / (1 + exponential(-x));
  }
  template <class A>
  PARTITA_HOST_DEVICE static A gradient(A x, A dy, A) {
    const A s = 1 / (1 + exponential(-x));
    return s * (1 + x * (1 - s)) * dy;
  }
};

}  // namespace partita
