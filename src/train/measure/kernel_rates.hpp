#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "src/train/measure/measure_options.hpp"

#include <array>

namespace partita {

/// The sizes of the layers that are measured: from what hardly fills a processor to what keeps all of it busy.
struct ProbeSizes {
  std::array<Index, 4> filters, features;
  Index image, images, rows;               ///< extent of a convolution's images, and their number; rows of a product
  std::array<Index, 2> channels, samples;  ///< of others, at 64 x 64 positions: in a cache, and larger than any cache
};
inline constexpr ProbeSizes probes_of_cpu{{4, 16, 64, 256}, {32, 128, 512, 2048}, 28, 4, 4, {1, 1024}, {4, 4}};
inline constexpr ProbeSizes probes_of_device{
    {16, 64, 256, 512}, {256, 1024, 4096, 8192}, 56, 32, 4096, {1, 1024}, {4, 64}};

/// Measures what kernels reach, and sets the machine's peaks, efficiencies, memory bandwidth and time of a small
/// kernel. Collective: every rank of `world` calls it.
void measure_kernels(Machine& machine, const MeasureOptions& options, Communicator& world);
void measure_kernels(Machine& machine, const MeasureOptions& options, const ProbeSizes& sizes, Communicator& world);

}  // namespace partita
