#include "src/backend/cuda/errors.hpp"

#include "partita/base/error.hpp"

#include <array>

namespace partita::cuda {

namespace {

/// What to do about errors of the runtime that users can mend.
std::string_view remedy(cudaError_t code) {
  switch (code) {
    case cudaErrorInsufficientDriver: return "; the driver is missing, or older than this build's CUDA";
    case cudaErrorNoDevice: return "; no card is visible, see CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has no code for the card, which needs compute capability 8.0";
    default: return "";
  }
}

}  // namespace

void check(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would report it again
  fail("CUDA cannot {}: {}{}", what, cudaGetErrorString(code), remedy(code));
}

void check(cublasStatus_t code, std::string_view what) {
  if (code != CUBLAS_STATUS_SUCCESS) fail("cuBLASLt cannot {}: {}", what, cublaslt().get_status_name(code));
}

void check(cudnnStatus_t code, std::string_view what) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnn().get_last_error_string(detail.data(), detail.size());
  fail("cuDNN cannot {}: {} {}", what, cudnn().get_error_string(code), detail.data());
}

}  // namespace partita::cuda
