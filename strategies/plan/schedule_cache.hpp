#pragma once

#include "partita/strategies/schedule/generators.hpp"
#include "strategies/schedule/simulation_order.hpp"

#include <deque>
#include <memory>

namespace partita {

/// Keeps the schedules used last, with their communication between stages. A planner binds many strategies with the
/// same number of stages and microbatches in turn, and these need the same schedules.
class ScheduleCache {
 public:
  /// Returns with_communication(generate(request), graph, true, places).
  std::shared_ptr<const Schedule> of(const ScheduleRequest& request, const GroupGraph& graph,
                                     const std::vector<std::vector<int>>& places);
  /// Returns the order in which that schedule is simulated.
  std::shared_ptr<const SimulationOrder> order_of(const ScheduleRequest& request, const GroupGraph& graph,
                                                  const std::vector<std::vector<int>>& places);

 private:
  struct Made {
    ScheduleRequest request;
    GroupGraph graph;
    std::vector<std::vector<int>> places;
    std::shared_ptr<const Schedule> schedule;
    std::shared_ptr<const SimulationOrder> order;  // null until it is asked for
  };
  Made& made(const ScheduleRequest& request, const GroupGraph& graph, const std::vector<std::vector<int>>& places);

  std::deque<Made> made_;    // most recent first
  std::size_t actions_ = 0;  // of all of them
};

}  // namespace partita
