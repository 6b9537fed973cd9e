#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"

namespace partita {

/// The largest memory and traffic of the ranks of a plan.
struct WorstRanks {
  MemoryPeak memory;
  int memory_rank = 0;
  Traffic traffic;  ///< per step, of the rank with the most bytes
  double sent = 0;  ///< bytes per step that leave the rank that sends the most (sent_bytes)
};

/// Looks at the representatives of each stage. Of ranks that do the same work only the first is examined.
WorstRanks worst_ranks(const Plan& plan);

}  // namespace partita
