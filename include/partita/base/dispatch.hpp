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

}  // namespace partita
