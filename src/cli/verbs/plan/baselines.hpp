#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/verbs/plan/search.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// A plain strategy that a plan is compared with.
struct Baseline {
  std::string name;                  ///< e.g. "samples and space"
  std::optional<Strategy> strategy;  ///< the fastest of its kind; nothing if the model has none for these ranks
  Cost cost{};
  bool fits = true;   ///< in the memory limit
  std::string why{};  ///< without a strategy: why the first one that was tried cannot run
};

/// Returns the fastest strategies of four kinds: samples alone; samples and space; samples and channels; samples and
/// stages, with the schedules, microbatches and short rules of plan_strategies(). One that fits the limit in bytes goes
/// before one that does not; 0 is no limit. The last of them is that of the search, if it has found one.
std::vector<Baseline> baselines(const Model& model, const Workload& workload, const MachineFiles& files, int ranks,
                                Index limit, const Search& search);

/// A strategy and its name, e.g. that of its file.
struct Named {
  std::string name;
  const Strategy* strategy;
};

/// Returns a line for each change of the machine: bandwidth, latency or arithmetic by a factor of 1.5 up or down. It
/// says which strategy is then fastest. The first one is the fastest without a change.
std::vector<std::string> sensitivity(const std::vector<Named>& strategies, const Model& model, const Workload& workload,
                                     const MachineFiles& files);

}  // namespace partita::cli
