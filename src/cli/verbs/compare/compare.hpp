#pragma once

#include "src/cli/support/json.hpp"
#include "src/cli/support/machine_files.hpp"
#include "partita/strategies/planner/memory_remedies.hpp"
#include "partita/train/measure/timed_steps.hpp"

#include <optional>

namespace partita::cli {

/// One strategy's price, and what it took where it was run.
struct Compared {
  std::string name;
  Plan plan;
  Cost cost;
  Holding held;                    ///< by the rank that holds most
  std::vector<Remedy> remedies{};  ///< what would make it fit, where it does not
  std::optional<StepTimes> measured{};
  double efficiency = 0;                           ///< speed-up over one rank, by the number of ranks
  bool fits() const { return held.missing == 0; }  ///< always, where nobody said a limit
  double error() const { return cost.seconds / measured->median - 1; }
};

/// The numbers of a step with their names, as tables and JSON have them.
std::vector<std::pair<std::string, double>> named_parts(const CostParts& parts);

/// All that was compared; `limit` is what a rank may hold, 0 for any.
Json to_json(const Options& options, const MachineFiles& files, const std::vector<Compared>& all, Index limit);

}  // namespace partita::cli
