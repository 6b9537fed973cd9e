#include "src/backend/gpu/cuda/errors.hpp"

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
    case cudaErrorInvalidDevice: return "; there is no such card";
    default: return "";
  }
}

/// Throws Error for what a user can mend before a run, DeviceError for what fails in it.
[[noreturn]] void report(bool in_run, const std::string& message) {
  if (in_run) throw DeviceError(message);
  throw Error(message);
}

}  // namespace

void check(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // else the next launch would report it again
  report(remedy(code).empty(), fmt::format("CUDA cannot {}: {}{}", what, cudaGetErrorString(code), remedy(code)));
}

void check(cublasStatus_t code, std::string_view what) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  report(code == CUBLAS_STATUS_EXECUTION_FAILED || code == CUBLAS_STATUS_INTERNAL_ERROR,
         fmt::format("cuBLASLt cannot {}: {}", what, cublaslt().get_status_name(code)));
}

void check(cudnnStatus_t code, std::string_view what) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnn().get_last_error_string(detail.data(), detail.size());
  report(CUDNN_STATUS_CATEGORY(code) >= CUDNN_STATUS_INTERNAL_ERROR,
         fmt::format("cuDNN cannot {}: {} {}", what, cudnn().get_error_string(code), detail.data()));
}

}  // namespace partita::cuda
