#pragma once

#include "partita/strategies/machine/machine.hpp"

#include <string>
#include <vector>

namespace partita {

// Input for SimGrid's SMPI (simgrid.org), which simulates all messages of a step on links that they share: a second
// opinion on the prices of a plan. It knows nothing of the cost model.

/// Returns the machine as SimGrid can simulate it: levels keep their latency, bandwidth, links and fan-out, but have no
/// measured curves and no switches that add. A unit whose pairs of ranks have different links becomes a switch with as
/// many links as a collective of all its ranks can use. All levels get the same `overlap` (0 to 1). Compare a
/// simulation with the price on this machine.
Machine simgrid_machine(const Machine& machine, double overlap);

/// Returns a platform file with the hosts "r0" to "r<ranks - 1>". A message passes, in full duplex, one link of each of
/// the two ranks, whose latency adds up to that of the level that it crosses. To leave a unit, it passes the links of
/// the unit together (bandwidth x links / fan-out), and those of all larger units that it leaves.
std::string simgrid_platform(const Machine& machine, int ranks);

/// Returns the options of smpirun that switch off its own model of a network: only the files count.
std::vector<std::string> simgrid_options();

}  // namespace partita
