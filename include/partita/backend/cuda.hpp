#pragma once

#include "partita/backend/backend.hpp"
#include "partita/device/device.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

// NVIDIA's GPUs. A build without CUDA has these functions too; those that need it throw Error.

namespace partita {

/// A GPU of this machine.
struct CudaCard {
  int number = 0;
  std::string name;          ///< e.g. "NVIDIA H100 80GB HBM3"
  Index memory = 0;          ///< bytes
  int major = 0, minor = 0;  ///< compute capability
  int processors = 0;        ///< streaming multiprocessors
  std::string bus;           ///< e.g. "0000:17:00.0"
};

/// The versions of the driver and of the libraries that run; "" where there is none.
struct CudaVersions {
  std::string driver, runtime, cudnn, cublas;
};

/// Returns true if this build can compute on GPUs.
bool have_cuda();
CudaVersions cuda_versions();
/// Returns the GPUs that this process may use; none if the machine has no driver.
std::vector<CudaCard> cuda_cards();

/// A GPU as the device of tensors. May be used by several threads. Its `staging` is pinned memory.
class CudaDevice : public Device {
 public:
  virtual int card() const = 0;
};
/// Makes the device of a card. Throws Error if there is no such card, or if this build lacks CUDA.
std::unique_ptr<CudaDevice> make_cuda_device(int card);

/// How a rank computes on a GPU.
struct CudaOptions {
  DType dtype = DType::f32;            ///< of the convolutions whose kernels are measured
  bool tf32 = false;                   ///< products of f32 may be rounded to TF32 (10 bits of mantissa)
  Index workspace = Index{256} << 20;  ///< bytes that the kernels of the rank may use besides tensors
};
/// Makes the backend of one rank: convolutions by cuDNN, products by cuBLASLt, and kernels of our own. It uses only
/// algorithms that give the same bits in each run. Throws Error as make_cuda_device does, or if the card has no room
/// for the workspace.
/// @pre `device` outlives the backend. One thread calls the backend, with one stream at a time.
std::unique_ptr<Backend> make_cuda_backend(CudaDevice& device, const CudaOptions& options = {});

/// True if the backend applies the activation while it computes a convolution, where cuDNN has an engine for both.
bool cuda_fuses(const Activation& f);

/// Returns those convolutions, on tensors of their own, for which cuDNN has no engine that CudaOptions allow: they run
/// in kernels of our own. `properties` describe the card, as JSON; "" stands for the first card of this machine.
/// Throws Error if there is none, or if this build lacks CUDA.
std::vector<ConvProblem> convolutions_beside_cudnn(std::span<const ConvProblem> problems, const CudaOptions& options,
                                                   const std::string& properties);

}  // namespace partita
