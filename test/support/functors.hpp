#pragma once

#include "partita/backend/backend.hpp"
#include "test/support/card.hpp"
#include "test/support/emulated_gpu/emulated_gpu.hpp"

#include <memory>
#include <vector>

namespace partita::test {

/// The kernels that run on a GPU, here on the CPU.
std::unique_ptr<Backend> make_functor_backend();

/// The backends that compute in every type: the reference, the functors, the same as kernels of a GPU and, in a run on
/// a card, its backend.
std::vector<std::unique_ptr<Backend>> all_types();

}  // namespace partita::test
