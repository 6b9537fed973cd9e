#pragma once

#include "partita/base/types.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace partita::cli {

/// A time for which ranks wait before each training step, on purpose (`train --delay`).
struct StepDelay {
  std::optional<int> rank;  ///< the rank that waits; nullopt: each rank, for a time up to `seconds` drawn at random
  double seconds = 0;
};

/// Reads "rank=3:20ms" or "random:5ms"; times are in us, ms or s. Throws Error for anything else.
StepDelay parse_delay(const std::string& text);

/// Returns the seconds for which a rank waits before a step: the sum over all delays. Random ones are uniform in
/// [0, StepDelay::seconds), and depend only on the seed, the rank, the step and the place of the delay in the list.
double delay_seconds(std::span<const StepDelay> delays, std::uint64_t seed, int rank, Index step);

}  // namespace partita::cli
