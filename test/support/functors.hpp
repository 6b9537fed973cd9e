#pragma once

#include "partita/backend/backend.hpp"
#include "test/support/card.hpp"
#include "test/support/emulated_gpu/emulated_gpu.hpp"

#include <memory>
#include <vector>

namespace partita::test {

/// The kernels that run on a GPU, here on the CPU.
std::unique_ptr<Backend> make_functor_backend();

/// What runs these kernels: loops of the CPU, the blocks and threads of an emulated GPU, or a card.
enum class Runner : std::uint8_t { cpu, emulated, card };
/// Returns what this run tests: a card only if there is one.
std::vector<Runner> runners();
std::unique_ptr<Backend> make_functors(Runner runner);

/// The backends that compute in every type: the reference, the functors, the same as kernels of a GPU and, in a run on
/// a card, its backend.
std::vector<std::unique_ptr<Backend>> all_types();

}  // namespace partita::test
