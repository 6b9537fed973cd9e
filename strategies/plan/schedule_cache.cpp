#include "strategies/plan/schedule_cache.hpp"

#include <algorithm>

namespace partita {

namespace {

/// The number of schedules to keep, whatever their length: enough for two kinds at four numbers of microbatches. A
/// schedule of 128 stages and 128 microbatches takes 2 MiB, and its order 7 MiB.
constexpr std::size_t least_kept = 8;
/// More are kept as long as they have fewer actions in all. A search for stage boundaries meets many graphs.
constexpr std::size_t most_actions = 1U << 20U;
/// To compare a request with more than these would take longer than to make a short schedule.
constexpr std::size_t most_kept = 256;

std::size_t actions_of(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& stage : schedule.stages) count += stage.size();
  return count;
}

}  // namespace

ScheduleCache::Made& ScheduleCache::made(const ScheduleRequest& request, const GroupGraph& graph,
                                         const std::vector<std::vector<int>>& places) {
  const auto same = std::find_if(made_.begin(), made_.end(), [&](const Made& made) {
    return made.request == request && made.places == places && made.graph == graph;
  });
  if (same != made_.end()) {
    std::rotate(made_.begin(), same, same + 1);
    return made_.front();
  }
  auto schedule = std::make_shared<const Schedule>(with_communication(generate(request), graph, true, places));
  actions_ += actions_of(*schedule);
  made_.push_front({request, graph, places, std::move(schedule), nullptr});
  while (made_.size() > most_kept || (made_.size() > least_kept && actions_ > most_actions)) {
    actions_ -= actions_of(*made_.back().schedule);
    made_.pop_back();
  }
  return made_.front();
}

std::shared_ptr<const Schedule> ScheduleCache::of(const ScheduleRequest& request, const GroupGraph& graph,
                                                  const std::vector<std::vector<int>>& places) {
  return made(request, graph, places).schedule;
}

std::shared_ptr<const SimulationOrder> ScheduleCache::order_of(const ScheduleRequest& request, const GroupGraph& graph,
                                                               const std::vector<std::vector<int>>& places) {
  Made& one = made(request, graph, places);
  if (!one.order) one.order = std::make_shared<const SimulationOrder>(*one.schedule, graph);
  return one.order;
}

}  // namespace partita
