#include "partita/base/dispatch.hpp"
#include "src/backend/alike.hpp"
#include "src/backend/reference.hpp"

#include <cmath>
#include <numbers>

namespace partita {

namespace {

using Kind = Activation::Kind;

/// f(x), and f'(x) * dy computed from the value that was kept: y = f(x) if that suffices, else x. `p` is the parameter
/// of the function.
template <Kind kind>
struct Function;

// The comparisons are written so that NaN propagates.
template <>
struct Function<Kind::relu> {
  template <class A>
  static A value(A x, A) {
    return x < A(0) ? A(0) : x;
  }
  template <class A>
  static A gradient(A y, A dy, A) {
    return y <= A(0) ? A(0) : dy;
  }
};

template <>
struct Function<Kind::leaky_relu> {
  template <class A>
  static A value(A x, A p) {
    return x < A(0) ? p * x : x;
  }
  template <class A>
  static A gradient(A y, A dy, A p) {
    return y > A(0) ? dy : p * dy;
  }
};

template <>
struct Function<Kind::elu> {
  template <class A>
  static A value(A x, A p) {
    return x < A(0) ? p * std::expm1(x) : x;
  }
  template <class A>
  static A gradient(A y, A dy, A p) {
    return y > A(0) ? dy : (y + p) * dy;
  }
};

template <>
struct Function<Kind::sigmoid> {
  template <class A>
  static A value(A x, A) {
    return 1 / (1 + std::exp(-x));
  }
  template <class A>
  static A gradient(A y, A dy, A) {
    return y * (1 - y) * dy;
  }
};

template <>
struct Function<Kind::tanh> {
  template <class A>
  static A value(A x, A) {
    return std::tanh(x);
  }
  template <class A>
  static A gradient(A y, A dy, A) {
    return (1 - y * y) * dy;
  }
};

template <>
struct Function<Kind::gelu> {
  /// P(X <= x)
  template <class A>
  static A below(A x) {
    return std::erfc(-x / std::numbers::sqrt2_v<A>) / 2;
  }
  template <class A>
  static A value(A x, A) {
    return x * below(x);
  }
  template <class A>
  static A gradient(A x, A dy, A) {
    const A density = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<A> / std::numbers::sqrt2_v<A>;
    return (below(x) + x * density) * dy;
  }
};

template <>
struct Function<Kind::silu> {
  template <class A>
  static A value(A x, A) {
    return x / (1 + std::exp(-x));
  }
  template <class A>
  static A gradient(A x, A dy, A) {
    const A s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s)) * dy;
  }
};

/// Calls f(Function<kind>{}) for the given kind.
template <class F>
void dispatch_function(Kind kind, F&& f) {
  switch (kind) {
    case Kind::relu: return f(Function<Kind::relu>{});
    case Kind::leaky_relu: return f(Function<Kind::leaky_relu>{});
    case Kind::elu: return f(Function<Kind::elu>{});
    case Kind::sigmoid: return f(Function<Kind::sigmoid>{});
    case Kind::tanh: return f(Function<Kind::tanh>{});
    case Kind::gelu: return f(Function<Kind::gelu>{});
    case Kind::silu: return f(Function<Kind::silu>{});
  }
  broken("unknown activation");
}

/// Calls f(T{}, Function<kind>{}, parameter), where T is the element type.
template <class F>
void dispatch_elements(const Activation& activation, DType dtype, F&& f) {
  dispatch_float(dtype, [&](auto t) {
    const auto parameter = static_cast<Accumulator<decltype(t)>>(activation.parameter);
    dispatch_function(activation.kind, [&](auto function) { f(t, function, parameter); });
  });
}

}  // namespace

void ReferenceBackend::activation_forward(const Activation& activation, const Tensor& x, const Tensor& y, Stream) {
  check_alike(x, y);
  dispatch_elements(activation, x.dtype(), [&, count = x.volume()](auto t, auto function, auto p) {
    using T = decltype(t);
    const T* from = x.as<T>();
    T* to = y.as<T>();
    for (Index i = 0; i < count; ++i) to[i] = static_cast<T>(function.value(static_cast<Accumulator<T>>(from[i]), p));
  });
}

void ReferenceBackend::activation_backward(const Activation& activation, const Tensor& kept, const Tensor& dy,
                                           const Tensor& dx, Stream) {
  check_alike(kept, dy);
  check_alike(kept, dx);
  dispatch_elements(activation, kept.dtype(), [&, count = kept.volume()](auto t, auto function, auto p) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T *of = kept.as<T>(), *from = dy.as<T>();
    T* to = dx.as<T>();
    for (Index i = 0; i < count; ++i)
      to[i] = static_cast<T>(function.gradient(static_cast<A>(of[i]), static_cast<A>(from[i]), p));
  });
}

}  // namespace partita
