#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

// Stands in for CUDA's header of this name, so that the kernels in src/backend/gpu/cuda run on the CPU. The threads of a
// block take turns, one at a time. They change at __syncthreads().

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)
#define __shared__ static  // blocks run one after the other
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
  dim3(unsigned the_x = 1, unsigned the_y = 1, unsigned the_z = 1) : x(the_x), y(the_y), z(the_z) {}  // NOLINT
  unsigned x, y, z;
};
struct uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
using cudaStream_t = void*;
enum cudaError_t { cudaSuccess };

extern dim3 gridDim, threadIdx, blockIdx;

/// Returns when all threads of the block have called it or have ended.
void __syncthreads();

template <class Word>
void __stcg(Word* to, Word word) {
  *to = word;
}

template <class Word>
Word __ldcg(const Word* from) {
  return *from;
}
inline void __threadfence() {}
inline unsigned atomicInc(unsigned* to, unsigned most) {
  const unsigned before = *to;
  *to = before >= most ? 0 : before + 1;
  return before;
}

/// Runs a kernel on all blocks of a grid.
void run_blocks(dim3 grid, unsigned threads, const std::function<void()>& kernel);

template <class... Parameters, std::size_t... at>
void run_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, std::index_sequence<at...>) {
  run_blocks(grid, block.x, [&] { kernel(*static_cast<Parameters*>(arguments[at])...); });
}
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t /*shared_bytes*/, cudaStream_t) {
  run_kernel(kernel, grid, block, arguments, std::index_sequence_for<Parameters...>());
  return cudaSuccess;
}
