#include "strategies/plan/schedule_cache.hpp"

#include <algorithm>

namespace partita {

namespace {

/// The number of schedules to keep: enough for two kinds at four numbers of microbatches. A schedule of 128 stages and
/// 128 microbatches takes 2 MiB, and its order 7 MiB.
constexpr std::size_t most_kept = 8;

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
  made_.push_front({request, graph, places, std::move(schedule), nullptr});
  if (made_.size() > most_kept) made_.pop_back();
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
