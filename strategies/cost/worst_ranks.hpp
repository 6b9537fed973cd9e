#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"

namespace partita {

// These look at the representatives of each stage. Of ranks that do the same work only the first is examined.

/// The rank of a plan that holds the most bytes in a step.
struct FullestRank {
  MemoryPeak memory;
  int rank = 0;
};
FullestRank fullest_rank(const Plan& plan);

/// The most that a rank of a plan sends and receives in a step.
struct MostTraffic {
  Traffic traffic;  ///< of the rank with the most bytes
  double sent = 0;  ///< bytes that leave the rank that sends the most (sent_bytes)
};
MostTraffic most_traffic(const Plan& plan);

}  // namespace partita
