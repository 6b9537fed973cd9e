#pragma once

#include "partita/train/trainer/processor.hpp"
#include "src/comm/device/device_threads.hpp"
#include "src/comm/device/staged.hpp"
#include "test/support/functors.hpp"
#include "test/support/lazy_device.hpp"

#include <memory>

namespace partita::test {

/// Scratch memory of a lazy backend: a few rows of a loss, so that it runs in chunks.
constexpr Index lazy_scratch_bytes = 320;
/// Bytes of device_threads, so few that sums of buckets are formed in pieces.
constexpr Index lazy_room = 1024;

/// The kernels of a GPU, on a lazy device.
std::unique_ptr<Backend> make_lazy_backend(LazyDevice& device);
/// A rank of run_threads() that computes on a lazy device.
Processor lazy_processor(Communicator& threads, LazyDevice& device);
/// The same with messages that pass through the memory of the CPU.
Processor staged_processor(Communicator& threads, LazyDevice& device);

}  // namespace partita::test
