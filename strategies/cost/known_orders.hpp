#pragma once

#include "partita/strategies/plan/plan.hpp"
#include "strategies/schedule/simulation_order.hpp"

#include <deque>
#include <memory>
#include <vector>

namespace partita {

/// A schedule of groups that feed each other, in the order in which it is simulated.
struct OrderedSchedule {
  std::vector<std::vector<Action>> stages;
  GroupGraph graph;
  SimulationOrder order;
};

/// Keeps the orders in which the schedules of the plans asked for last are simulated. A search prices many plans with
/// the same schedule in turn.
class KnownOrders {
 public:
  /// Throws as simulate() does.
  std::shared_ptr<const OrderedSchedule> of(const Plan& plan);

 private:
  static constexpr std::size_t most = 8;                    // as ScheduleCache
  std::deque<std::shared_ptr<const OrderedSchedule>> all_;  // most recent first
};

}  // namespace partita
