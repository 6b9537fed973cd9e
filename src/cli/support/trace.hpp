#pragma once

#include "partita/strategies/schedule/simulate.hpp"
#include "partita/train/run/executor.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// The actions of whole steps of all ranks as a Chrome trace (JSON that Perfetto opens): a row a rank, arrows from a send to
/// the action that needs it, and below a row a stage of what is predicted: what the simulator makes of a machine's prices where
/// there is one (`priced`), else of the medians of the times. Ranks of several hosts have clocks of their own. Only rank 0 gets it. Collective.
std::string chrome_trace(const Plan& plan, const std::vector<TimedAction>& mine,
                         const std::optional<Simulation>& priced, Communicator& world);

}  // namespace partita::cli
