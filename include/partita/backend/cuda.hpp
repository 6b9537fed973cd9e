#pragma once

#include "partita/backend/backend.hpp"
#include "partita/device/device.hpp"

#include <memory>
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

/// Returns the bytes that the kernels of a rank use besides tensors on a card with this memory, unless they are given:
/// a 64th, but at least 256 MiB and at most 2 GiB. ResNet-50's fastest engines want 182 to 784 MiB at a batch of 256.
constexpr Index default_workspace(Index card_memory) {
  constexpr Index mib = Index{1} << 20;
  const Index share = card_memory / 64 / mib * mib;
  return share < 256 * mib ? 256 * mib : share > 2048 * mib ? 2048 * mib : share;
}

/// How a rank computes on a GPU.
struct CudaOptions {
  DType dtype = DType::f32;                ///< of the convolutions whose kernels are measured
  bool tf32 = false;                       ///< products of f32 may be rounded to TF32 (10 bits of mantissa)
  Index workspace = default_workspace(0);  ///< bytes that the kernels of the rank may use besides tensors
};
/// Makes the backend of one rank: convolutions by cuDNN, products by cuBLASLt, and kernels of our own. It uses only
/// algorithms that give the same bits in each run. Throws Error as make_cuda_device does, or if the card has no room
/// for the workspace.
/// @pre `device` outlives the backend. One thread calls the backend, with one stream at a time.
std::unique_ptr<Backend> make_cuda_backend(CudaDevice& device, const CudaOptions& options = {});

}  // namespace partita
