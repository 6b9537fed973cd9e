#pragma once

#include "partita/backend/backend.hpp"

#include <memory>
#include <span>

namespace partita::test {

/// The kernels that run on a GPU, on the CPU: the same blocks, threads and barriers, one thread at a time.
std::unique_ptr<Backend> make_emulated_backend();

/// Device::move by the same kernels.
void emulated_moves(std::span<const BoxMove> moves);

}  // namespace partita::test
