#pragma once

#include "partita/strategies/schedule/schedule.hpp"

#include <vector>

namespace partita {

/// How long the actions of one group take for one microbatch, in any unit of time. A combined backward takes both.
struct GroupTimes {
  double forward = 1, backward_data = 1, backward_filter = 1;
  double reduce = 0, step = 0;  ///< once for all microbatches
  bool operator==(const GroupTimes&) const = default;
};

/// Times of a schedule's actions.
struct ScheduleTimes {
  std::vector<GroupTimes> groups;
  double transfer = 0;          ///< from one stage to another; it holds up neither
  std::vector<double> edges{};  ///< the same by GroupGraph::edge, where they differ

  const GroupTimes& of(int group) const { return groups[static_cast<std::size_t>(group)]; }
  double of(const Action& action) const;
};

/// Equal groups, of which each stage has `a_stage`: the times are those of a stage for one microbatch.
ScheduleTimes equal_times(int groups, int a_stage, const GroupTimes& stage, double transfer);

/// What one group holds of one microbatch, in any unit.
struct GroupMemory {
  double activations = 1;  ///< from forward (or recompute) to the backward of its inputs
  double filter = 0;       ///< from that to the backward of its weights
  double input = 0;        ///< from forward to recompute, where there is one
};

/// The most that each stage holds at one moment, in the order of its list. `memory` by group.
std::vector<double> peak_memory(const Schedule& schedule, const std::vector<GroupMemory>& memory);

/// When everything happens: each stage does its list in order, each action as soon as its predecessors are done.
struct Simulation {
  /// An action and when it runs.
  struct Span {
    Action action;
    double start = 0, end = 0;
  };
  std::vector<std::vector<Span>> stages;
  std::vector<double> busy;  ///< by stage
  double makespan = 0;       ///< until the last action ends
  double cost = 0;           ///< from its first start to its last end, of the stage where it is longest
  std::vector<std::pair<int, int>> critical;  ///< (stage, position): the actions that no slack separates, first to last

  /// From its first start to its last end, less what it was busy.
  double idle(int stage) const;
  /// (cost - busy) / cost, the mean over stages. Of equal stages it is (cost - m(F+B+W)) / cost (Qi et al. 2023, table 5).
  double bubble_rate() const;
};

/// Throws Error, as check_order does, for a schedule that cannot run to its end.
Simulation simulate(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times);

/// Its makespan alone, in less time. Throws as simulate() does.
double makespan(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times);

}  // namespace partita
