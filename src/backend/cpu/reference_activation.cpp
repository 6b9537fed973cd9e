#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/dispatch_activation.hpp"
#include "src/backend/cpu/reference.hpp"

namespace partita {

namespace {

/// Calls f(T{}, ActivationFunction<kind>{}, parameter), where T is the element type.
template <class F>
void dispatch_elements(const Activation& activation, DType dtype, F&& f) {
  dispatch_float(dtype, [&](auto t) {
    const auto parameter = static_cast<Accumulator<decltype(t)>>(activation.parameter);
    dispatch_activation(activation.kind, [&](auto function) { f(t, function, parameter); });
  });
}

}  // namespace

void ReferenceBackend::sum(const Tensor& a, const Tensor& b, bool relu, const Tensor& y, Stream) {
  check_alike(a, b);
  check_alike(a, y);
  dispatch_float(y.dtype(), [&, count = y.volume()](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T *first = a.as<T>(), *second = b.as<T>();
    T* to = y.as<T>();
    const auto add = [&](auto then) {
      for (Index i = 0; i < count; ++i)
        to[i] = static_cast<T>(then(static_cast<A>(first[i]) + static_cast<A>(second[i])));
    };
    relu ? add([](A value) { return ActivationFunction<Activation::Kind::relu>::value(value, A(0)); })
         : add([](A value) { return value; });
  });
}

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
