#pragma once

#include "partita/backend/cuda.hpp"
#include "partita/base/host_device.hpp"
#include "partita/device/tensor.hpp"

#include <initializer_list>
#include <string_view>
#include <vector>

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include <algorithm>
#endif

// Kernels of your own. A functor is written once, marked PARTITA_HOST_DEVICE; a C++ compiler makes it a function of the
// CPU, and nvcc (`nvcc -x cu`) one of GPUs too.

namespace partita {

#if defined(__CUDACC__)
template <class F>
__global__ void for_each_kernel(Index count, Index columns, F f) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    f(i / columns, i % columns);
}
#endif

/// Calls f(row, column) once for each row and column, in any order, on the device where the tensors lie and in the
/// order of the stream. f is copied; it holds addresses and numbers, and accesses the elements of `reads` and `writes`
/// alone. `what` names it in messages. Throws Error if the tensors lie on a GPU and the caller was not compiled by
/// nvcc.
/// @pre All tensors lie on one device; there is at least one in `writes`.
template <class F>
void for_each(std::string_view what, Index rows, Index columns, const F& f, std::initializer_list<Tensor> reads,
              std::initializer_list<Tensor> writes, Stream stream) {
  Device& device = writes.begin()->device();
#if defined(__CUDACC__)
  if (const auto* card = dynamic_cast<const CudaDevice*>(&device)) {
    if (rows == 0 || columns == 0) return;
    constexpr Index threads = 256, most = 1 << 16;
    const auto blocks = static_cast<unsigned>(std::min((rows * columns + threads - 1) / threads, most));
    cudaSetDevice(card->card());
    for_each_kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream.native)>>>(rows * columns, columns, f);
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
      throw DeviceError(std::string("CUDA cannot start the kernel ") + std::string(what) + ": " +
                        cudaGetErrorString(code));
    return;
  }
#endif
  std::vector<Touched> touched;
  for (const Tensor& each : reads) touched.push_back({each.data(), static_cast<std::size_t>(each.bytes()), false});
  for (const Tensor& each : writes) touched.push_back({each.data(), static_cast<std::size_t>(each.bytes()), true});
  const auto run = [=] {
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < columns; ++column) f(row, column);
  };
  device.run(what, touched, run, stream);
}

}  // namespace partita
