#pragma once

#include "partita/strategies/schedule/generators.hpp"

#include <deque>
#include <memory>

namespace partita {

/// Schedules with what their stages say to each other. A planner cuts and binds many strategies of as many stages and microbatches in
/// turn: the last few are kept.
class ScheduleCache {
 public:
  /// As with_communication(generate(request), graph, true, places).
  std::shared_ptr<const Schedule> of(const ScheduleRequest& request, const GroupGraph& graph,
                                     const std::vector<std::vector<int>>& places);

 private:
  struct Made {
    ScheduleRequest request;
    GroupGraph graph;
    std::vector<std::vector<int>> places;
    std::shared_ptr<const Schedule> schedule;
  };
  std::deque<Made> made_;  // the last one first
};

}  // namespace partita
