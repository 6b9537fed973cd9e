#pragma once

#include "partita/backend/backend.hpp"
#include "partita/base/error.hpp"
#include "src/backend/common/update_rules.hpp"

#include <type_traits>

namespace partita {

/// Returns the arrays of a piece of a weight.
template <class T>
UpdateArrays<T> arrays_of(const WeightPiece& piece, const UpdateRule<T>& rule) {
  return {.dw = reinterpret_cast<const T*>(piece.dw),
          .w = reinterpret_cast<T*>(piece.w),
          .first = reinterpret_cast<T*>(piece.state[0]),
          .second = reinterpret_cast<T*>(piece.state[1]),
          .decay = piece.decays ? rule.decay : T(0),
          .rounded = piece.rounded,
          .to_half = piece.rounded_type == DType::f16};
}

/// Calls f with the method as a compile-time constant: f(std::integral_constant<Method, method>{}).
template <class F>
void dispatch_method(Method method, F&& f) {
  switch (method) {
    case Method::sgd: return f(std::integral_constant<Method, Method::sgd>{});
    case Method::adagrad: return f(std::integral_constant<Method, Method::adagrad>{});
    case Method::rmsprop: return f(std::integral_constant<Method, Method::rmsprop>{});
    case Method::adam: return f(std::integral_constant<Method, Method::adam>{});
    case Method::adamw: return f(std::integral_constant<Method, Method::adamw>{});
    case Method::lars: return f(std::integral_constant<Method, Method::lars>{});
    case Method::lamb: return f(std::integral_constant<Method, Method::lamb>{});
  }
  broken("unknown method");
}

}  // namespace partita
