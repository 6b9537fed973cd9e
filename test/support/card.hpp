#pragma once

#include "partita/backend/cuda.hpp"
#include "partita/device/tensor.hpp"
#include "src/base/plain_text.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>

// Tests on a GPU. With PARTITA_DEVICE=cuda:N and CUDA_LAUNCH_BLOCKING=1, tests of backends run on a card too.

namespace partita::test {

/// The card on which this run tests; null if PARTITA_DEVICE is not set.
inline CudaDevice* card() {
  static const std::unique_ptr<CudaDevice> device = [] {
    const char* name = std::getenv("PARTITA_DEVICE");
    if (name == nullptr || std::strncmp(name, "cuda:", 5) != 0) return std::unique_ptr<CudaDevice>();
    return make_cuda_device(parse_number<int>(name + 5).value_or(0));
  }();
  return device.get();
}

/// Returns a zeroed tensor that the CPU and, in a run on a card, its kernels can access.
inline Tensor tensor(DType dtype, std::string_view names, const Box& box) {
  static const auto allocator =
      std::make_shared<Allocator>(card() != nullptr ? card()->staging() : static_cast<Device&>(host_device()));
  return {dtype, names, box, allocator, MemoryClass::workspace};
}

}  // namespace partita::test
