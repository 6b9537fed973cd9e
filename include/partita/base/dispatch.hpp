#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/base/error.hpp"
#include "partita/base/types.hpp"

#include <Eigen/Core>
#include <cstdint>

namespace partita {

/// Calls f(T{}) with the C++ type T that stores `dtype`. Include this header only where elements are accessed, since it
/// includes Eigen.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::bf16: return f(Eigen::bfloat16{});
    case DType::f16: return f(Eigen::half{});
    case DType::i32: return f(std::int32_t{});
  }
  broken("unknown dtype");
}

/// As `dispatch`, for floating-point types only. Ends the process if `dtype` is an integer type.
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::bf16: return f(Eigen::bfloat16{});
    case DType::f16: return f(Eigen::half{});
    case DType::i32: break;
  }
  broken("integers in floating-point arithmetic");
}

/// Calls f(S{}, T{}) with the types from which and to which elements are added: equal ones, or bf16 or f16 and f32.
/// Ends the process for others.
template <class F>
void dispatch_sum(DType from, DType to, F&& f) {
  if (from == to) return dispatch(to, [&](auto t) { f(t, t); });
  require(to == DType::f32 && (from == DType::bf16 || from == DType::f16), "a sum keeps the dtype, or adds to f32");
  from == DType::bf16 ? f(Eigen::bfloat16{}, float{}) : f(Eigen::half{}, float{});
}

}  // namespace partita
