#pragma once

#include "partita/base/host_device.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#endif

#include <Eigen/Core>

#include <type_traits>

namespace partita {

/// Converts a value to the type of the elements of a tensor, as static_cast does. A GPU rounds to bf16 in one
/// instruction, while Eigen's conversion takes seven there.
template <class T, class A>
PARTITA_HOST_DEVICE T to_element(A value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Eigen::bfloat16>) {
    const __nv_bfloat16 nearest = __float2bfloat16_rn(static_cast<float>(value));
    return Eigen::bfloat16_impl::raw_uint16_to_bfloat16(__bfloat16_as_ushort(nearest));
  } else {
    return static_cast<T>(value);
  }
#else
  return static_cast<T>(value);
#endif
}

}  // namespace partita
