#pragma once

#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/schedule/generators.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// A schedule with its simulated times and its memory.
struct ScheduleReport {
  Schedule schedule;
  GroupTimes times;     ///< times of one stage and microbatch, in any unit
  double transfer = 0;  ///< time of one transfer between stages, in the same unit
  Simulation simulation;
  std::vector<double> peaks;  ///< peak memory of each stage, in activations of one stage and microbatch
};

/// The memory of each group, in activations of one stage and microbatch, if all groups are equal. `filter_memory` is
/// the part that is kept until the backward of the weights.
std::vector<GroupMemory> equal_memory(const Schedule& schedule, double filter_memory);

/// Simulates the schedule with the times and the memory of `request`, if all groups are equal. Throws Error as
/// check_order() does if the schedule cannot run.
ScheduleReport examine(const Schedule& schedule, const GroupGraph& graph, const ScheduleRequest& request);

/// Prints the times, the bubble and a table with a row for each stage. If `columns` is not 0, adds a drawing of the
/// schedule that is `columns` characters wide.
std::string print(const ScheduleReport& report, int columns);
/// Draws the schedule as SVG.
std::string draw(const ScheduleReport& report);

/// Notes for the user: if the batch has fewer samples than the strategy has microbatches, and if the result of a layer
/// depends on the microbatches.
std::vector<std::string> microbatch_notes(const Strategy& strategy, const Plan& plan);

}  // namespace partita::cli
