#include "partita/base/error.hpp"
#include "src/backend/cuda/launcher.hpp"

#include <cuda_runtime.h>

namespace partita::cuda {

void check_launch() {
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    fail("a kernel could not start on the GPU: {}", cudaGetErrorString(code));
}

void check_count(Index count, Index most) {
  if (count > most)
    fail("a kernel would have {} parts, and a GPU can number {}; use smaller microbatches", count, most);
}

}  // namespace partita::cuda
