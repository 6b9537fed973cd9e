#include "strategies/cost/known_orders.hpp"

#include <algorithm>

namespace partita {

std::shared_ptr<const OrderedSchedule> KnownOrders::of(const Plan& plan) {
  GroupGraph graph = graph_of(plan);
  const auto same = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
    return each->graph == graph && each->stages == plan.schedule.stages;
  });
  if (same != all_.end()) {
    std::rotate(all_.begin(), same, same + 1);
    return all_.front();
  }
  SimulationOrder order(plan.schedule, graph);
  all_.push_front(std::make_shared<const OrderedSchedule>(
      OrderedSchedule{plan.schedule.stages, std::move(graph), std::move(order)}));  // Clang 14 needs braces
  if (all_.size() > most) all_.pop_back();
  return all_.front();
}

}  // namespace partita
