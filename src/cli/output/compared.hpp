#pragma once

#include "partita/strategies/planner/memory_remedies.hpp"
#include "src/train/measure/timed_steps.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// The predicted cost of one strategy and, if it was run, its measured time.
struct Compared {
  std::string name;
  Plan plan;
  Cost cost;
  std::string chosen{};            ///< what was chosen for the machine, and by which price
  Holding held;                    ///< memory of the rank that holds most
  std::vector<Remedy> remedies{};  ///< changes that would make it fit; empty if it fits
  std::optional<StepTimes> measured{};
  double efficiency = 0;                           ///< speed-up over one rank, divided by the number of ranks
  bool fits() const { return held.missing == 0; }  ///< true if there is no memory limit
  /// Relative error of the predicted time. @pre The strategy was measured.
  double error() const { return cost.seconds / measured->median - 1; }
};

/// Prints a number per second with at least three digits: large samples may take seconds each.
std::string print_rate(double per_second);

/// The parts of a step's time in seconds, with the names that tables and JSON use.
std::vector<std::pair<std::string, double>> named_parts(const CostParts& parts);

/// Factors from seconds to milliseconds, and from MiB to bytes.
inline constexpr double ms = 1e3, mib = 1 << 20;

}  // namespace partita::cli
