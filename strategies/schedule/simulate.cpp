#include "partita/strategies/schedule/simulate.hpp"

#include "strategies/schedule/stuck.hpp"

#include <algorithm>
#include <numeric>

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

namespace {

/// Runs the lists: each stage as far as it can go, then the next stage.
class Simulator {
 public:
  /// `keeps`: whether to record when each action ran, and what it waited for.
  Simulator(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times, bool keeps)
      : schedule_(schedule),
        keeps_(keeps),
        times_(times),
        dependencies_(schedule, graph),
        done_(dependencies_.size()),
        heads_(schedule.stages.size(), 0),
        clocks_(schedule.stages.size(), 0),
        last_(schedule.stages.size(), -1),
        causes_(schedule.stages.size()) {
    if (!keeps) return;
    result_.stages.resize(schedule.stages.size());
    for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
      result_.stages[s].reserve(schedule.stages[s].size());
      causes_[s].reserve(schedule.stages[s].size());
    }
  }

  Simulation run() && {
    work_off();
    measure();
    trace_back();
    return std::move(result_);
  }

  double makespan() && {
    work_off();
    return std::accumulate(clocks_.begin(), clocks_.end(), 0.0, [](double a, double b) { return std::max(a, b); });
  }

 private:
  void work_off() {
    run_all_stages(
        schedule_, heads_, [&](std::size_t stage) { return advance(stage); },
        [&](int waiting) { return wait(waiting); });
  }

  /// Where an action was done, and when it ended.
  struct Done {
    int stage = -1, position = 0;
    double end = 0;
  };
  /// The predecessor that ended last, which determined an action's start.
  struct Cause {
    int stage = -1, position = 0;  // -1: it started with the stage
  };

  bool advance(std::size_t stage) {
    const auto& actions = schedule_.stages[stage];
    const std::size_t head = heads_[stage];
    if (head == actions.size()) return false;
    const Action& action = actions[head];
    // Both ends post a transfer at its position. It starts when both have posted it, and the stages continue meanwhile.
    double start = clocks_[stage];
    Cause cause = last_[stage] < 0 ? Cause{} : Cause{static_cast<int>(stage), last_[stage]};
    bool ready = true;
    dependencies_.each(action, [&](const Action& before) {
      const Done& done = done_[dependencies_.index(before)];
      ready = ready && done.stage >= 0;
      if (!ready) return;
      const bool crosses = done.stage != static_cast<int>(stage) && (action.is_compute() || action.is_transfer());
      const bool posted_late = crosses && action.is_transfer() && clocks_[stage] > done.end;
      const double begin = posted_late ? clocks_[stage] : done.end;
      if (const double arrival = begin + (crosses ? transfer(before.group, action) : 0); arrival > start) {
        start = arrival;
        if (!posted_late) cause = {done.stage, done.position};
      }
    });
    if (!ready) return false;
    const double end = start + times_.of(action);
    if (!action.is_transfer()) {
      clocks_[stage] = end;
      last_[stage] = static_cast<int>(head);
    }
    if (keeps_) {
      result_.stages[stage].push_back({action, start, end});
      causes_[stage].push_back(cause);
    }
    done_[dependencies_.index(action)] = {static_cast<int>(stage), static_cast<int>(head), end};
    ++heads_[stage];
    return true;
  }

  double transfer(int from, const Action& action) const {
    const auto [first, last] = std::minmax(from, action.group);
    return times_.of_edge(dependencies_.graph().edge(first, last), action.replica);
  }

  Wait wait(int stage) const {
    const Action& at = schedule_.stages[stage][heads_[stage]];
    Wait wait{stage, at, at};
    dependencies_.each(at, [&](const Action& before) {
      if (wait.needed == at && done_[dependencies_.index(before)].stage < 0) wait.needed = before;
    });
    return wait;
  }

  void measure() {
    for (const auto& spans : result_.stages) {
      double busy = 0;
      for (const auto& span : spans)
        if (!span.action.is_transfer()) busy += span.end - span.start;
      result_.busy.push_back(busy);
      if (spans.empty()) continue;
      const double end = clocks_[result_.busy.size() - 1];
      result_.makespan = std::max(result_.makespan, end);
      result_.cost = std::max(result_.cost, end - first_start(spans));
    }
  }

  static double first_start(const std::vector<Simulation::Span>& spans) {
    for (const auto& span : spans)
      if (!span.action.is_transfer()) return span.start;
    return 0;
  }

  void trace_back() {
    Cause at;
    for (std::size_t stage = 0; stage < heads_.size(); ++stage)
      if (at.stage < 0 && last_[stage] >= 0 && clocks_[stage] >= result_.makespan)
        at = {static_cast<int>(stage), last_[stage]};
    while (at.stage >= 0) {
      result_.critical.emplace_back(at.stage, at.position);
      at = causes_[at.stage][at.position];
    }
    std::reverse(result_.critical.begin(), result_.critical.end());
  }

  const Schedule& schedule_;
  bool keeps_;
  const ScheduleTimes& times_;
  Dependencies dependencies_;
  std::vector<Done> done_;
  Heads heads_;
  std::vector<double> clocks_;              // by stage: the end of its last action that was not a transfer
  std::vector<int> last_;                   // by stage: that action's position
  std::vector<std::vector<Cause>> causes_;  // by stage and position
  Simulation result_;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times) {
  return Simulator(schedule, graph, times, true).run();
}

double makespan(const Schedule& schedule, const GroupGraph& graph, const ScheduleTimes& times) {
  return Simulator(schedule, graph, times, false).makespan();
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
