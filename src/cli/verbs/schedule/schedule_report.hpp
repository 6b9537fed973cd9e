#pragma once

#include "partita/strategies/schedule/generators.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// A schedule with all that is known of it.
struct ScheduleReport {
  Schedule schedule;
  GroupTimes times;  ///< of a stage and a microbatch, in any unit
  double transfer = 0;
  Simulation simulation;
  std::vector<double> peaks;  ///< by stage, in activations of a stage and a microbatch
};

/// What each group holds of a stage's activations, if all groups are equal.
std::vector<GroupMemory> equal_memory(const Schedule& schedule, double filter_memory);

/// With the times and the memory of `request`, if all groups are equal. Throws Error, as check_order, for what cannot run.
ScheduleReport examine(const Schedule& schedule, const GroupGraph& graph, const ScheduleRequest& request);

/// Times, bubble and a row a stage; below a row a stage over `columns` of time, unless they are 0.
std::string print(const ScheduleReport& report, int columns);
/// The same as a drawing (SVG).
std::string draw(const ScheduleReport& report);

/// What a user of microbatches should know: that the batch has fewer samples than the strategy asks for, that a layer's result depends on
/// them.
std::vector<std::string> microbatch_notes(const Strategy& strategy, const Plan& plan);

}  // namespace partita::cli
