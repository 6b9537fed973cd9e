#pragma once

#include "partita/strategies/schedule/schedule.hpp"

#include <algorithm>
#include <vector>

namespace partita {

/// Durations of the actions of one group for one microbatch, in any unit of time. A combined backward takes both
/// backward times.
struct GroupTimes {
  double forward = 1, backward_data = 1, backward_filter = 1;
  double reduce = 0, step = 0;  ///< once for all microbatches
  bool operator==(const GroupTimes&) const = default;
};

/// The time of a transfer from one stage to another. It delays neither stage's other actions. What a stage sends over
/// the links of one level of the machine leaves one after the other, and so do transfers from one stage to another, but
/// for their latencies.
struct TransferTime {
  double seconds = 0;
  double latency = 0;  ///< the part of `seconds` for which the links are free
  int level = 0;

  /// Adds a transfer that starts at the same time between the same stages. They have one latency together.
  void add(const TransferTime& other) {
    seconds += other.seconds - std::min(latency, other.latency);
    latency = std::max(latency, other.latency);
    level = std::max(level, other.level);
  }
};

/// The times of the transfers between two groups.
struct EdgeTimes {
  TransferTime output, gradient;
};

/// Durations of a schedule's actions.
struct ScheduleTimes {
  std::vector<GroupTimes> groups;
  double transfer = 0;             ///< seconds from one stage to another
  std::vector<EdgeTimes> edges{};  ///< transfers by GroupGraph::edge, if they differ
  /// The times of the second replica (Chimera), whose groups run on other stages. Empty: those of the first one.
  std::vector<GroupTimes> second_groups{};
  std::vector<EdgeTimes> second_edges{};

  const GroupTimes& of(int group, int replica = 0) const {
    return (replica == 0 || second_groups.empty() ? groups : second_groups)[group];
  }
  double of(const Action& action) const;
  /// The times of the transfers over an edge of the graph.
  EdgeTimes of_edge(int edge, int replica) const {
    const auto& all = replica == 0 || second_edges.empty() ? edges : second_edges;
    return all.empty() ? EdgeTimes{{transfer}, {transfer}} : all[edge];
  }
};

/// The times of equal groups, `a_stage` of them on each stage. `stage` are the times of a whole stage for one
/// microbatch.
ScheduleTimes equal_times(int groups, int a_stage, const GroupTimes& stage, double transfer);

/// Memory that one group holds for one microbatch, in any unit.
struct GroupMemory {
  double activations = 1;  ///< from forward (or recompute) to the backward of its inputs
  double filter = 0;       ///< from then to the backward of its weights
  double input = 0;        ///< from forward to recompute, if the group recomputes
};

/// Returns the peak memory of each stage if it runs its list in order. `memory` is by group.
std::vector<double> peak_memory(const Schedule& schedule, const std::vector<GroupMemory>& memory);

/// The timing of a schedule in which each stage runs its list in order, each action as soon as its predecessors are
/// done. A transfer starts when both stages have come to it and its links are free. As in the executor, a backward
/// waits until the gradients that its stage has sent have arrived, and the outputs of its microbatch.
struct Simulation {
  /// An action and the time when it runs.
  struct Span {
    Action action;
    double start = 0, end = 0;
  };
  std::vector<std::vector<Span>> stages;
  std::vector<double> busy;  ///< by stage: total duration of its actions
  double makespan = 0;       ///< end of the last action
  double cost = 0;           ///< of the stage where it is longest: the time from its first start to its last end
  /// the critical path: (stage, position) of actions without slack, from first to last
  std::vector<std::pair<int, int>> critical;

  /// The time from the stage's first start to its last end, minus its busy time.
  double idle(int stage) const;
  /// The mean over stages of (cost - busy) / cost. For equal stages this is (cost - m(F+B+W)) / cost (Qi et al. 2023,
  /// table 5).
  double bubble_rate() const;
};

/// Simulates a schedule. Throws Error, as check_order does, if it cannot run to its end.
Simulation simulate(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times);

/// Computes only the makespan, which is faster. Throws as simulate() does.
double makespan(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times);

}  // namespace partita
