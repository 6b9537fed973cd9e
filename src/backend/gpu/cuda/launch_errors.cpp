#include "src/backend/gpu/cuda/launch_errors.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/cuda/errors.hpp"

namespace partita::cuda {

void check_launch(cudaError_t error) { check(error, "start a kernel"); }

void check_count(Index count, Index most) {
  if (count > most)
    fail("a kernel would have {} parts, and a GPU can number {}; use smaller microbatches", count, most);
}

}  // namespace partita::cuda
