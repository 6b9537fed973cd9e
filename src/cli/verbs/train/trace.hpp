#pragma once

#include "partita/strategies/schedule/simulate.hpp"
#include "src/cli/verbs/train/delays.hpp"
#include "src/train/executor/executor.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// Returns the actions of whole steps of all ranks as a Chrome trace (JSON that Perfetto opens). The trace has a row
/// for each rank, with its delays, and an arrow from each send to the action that needs it. Below, it has a row for
/// each stage with the predicted actions: those of `priced`, which the machine file gives, else a simulation with the
/// median measured times. A predicted step begins with the measured one, or when the predicted step before it has
/// ended. Times of ranks on different hosts come from different clocks. Returns "" on other ranks than 0. Collective:
/// every rank of `world` calls it.
std::string chrome_trace(const Plan& plan, const std::vector<TimedAction>& mine, const std::vector<TimedDelay>& delays,
                         const std::optional<Simulation>& priced, Communicator& world);

}  // namespace partita::cli
