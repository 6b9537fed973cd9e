#include "partita/strategies/schedule/simulate.hpp"

#include "strategies/schedule/simulation_order.hpp"

#include <algorithm>

namespace partita {

double ScheduleTimes::of(const Action& action) const {
  using enum Action::Kind;
  const GroupTimes& times = of(action.group, action.replica);
  switch (action.kind) {
    case forward:
    case recompute: return times.forward;
    case backward: return times.backward_data + times.backward_filter;
    case backward_data: return times.backward_data;
    case backward_filter: return times.backward_filter;
    case reduce: return times.reduce;
    case step: return times.step;
    default: return 0;
  }
}

ScheduleTimes equal_times(int groups, int a_stage, const GroupTimes& stage, double transfer) {
  const double share = 1.0 / a_stage;
  return {std::vector(static_cast<std::size_t>(groups),
                      GroupTimes{stage.forward * share, stage.backward_data * share, stage.backward_filter * share,
                                 stage.reduce * share, stage.step * share}),
          transfer};
}

Simulation simulate(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times) {
  return SimulationOrder(schedule, graph).simulate(times);
}

double makespan(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times) {
  return SimulationOrder(schedule, graph).makespan(times);
}

double Simulation::idle(int stage) const {
  const auto& spans = stages[stage];
  const auto works = [](const Span& span) { return !span.action.is_transfer(); };
  const auto first = std::find_if(spans.begin(), spans.end(), works);
  if (first == spans.end()) return 0;
  const auto last = std::find_if(spans.rbegin(), spans.rend(), works);
  return last->end - first->start - busy[stage];
}

double Simulation::bubble_rate() const {
  if (cost == 0) return 0;
  double rate = 0;
  for (const double each : busy) rate += (cost - each) / cost;
  return rate / static_cast<double>(busy.size());
}

std::vector<double> peak_memory(const Schedule& schedule, const std::vector<GroupMemory>& memory) {
  using enum Action::Kind;
  const auto groups = static_cast<std::size_t>(schedule.groups());
  std::vector<bool> recomputed(groups * static_cast<std::size_t>(schedule.microbatches()), false);
  const auto place = [&](const Action& a) {
    return static_cast<std::size_t>(a.microbatch) * groups + static_cast<std::size_t>(a.group);
  };
  for (const auto& actions : schedule.stages)
    for (const auto& action : actions)
      if (action.kind == recompute) recomputed[place(action)] = true;
  std::vector<double> peaks;
  for (const auto& actions : schedule.stages) {
    double now = 0, peak = 0;
    for (const auto& action : actions) {
      const GroupMemory& each = memory[action.group];
      switch (action.kind) {
        case forward: now += recomputed[place(action)] ? each.input : each.activations; break;
        case recompute: now += each.activations - each.input; break;
        case backward: now -= each.activations; break;
        case backward_data: now += each.filter - each.activations; break;
        case backward_filter: now -= each.filter; break;
        default: break;
      }
      peak = std::max(peak, now);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace partita
