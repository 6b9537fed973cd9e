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
        two_replicas_(schedule.replicas() > 1),
        times_(times),
        dependencies_(schedule, graph),
        done_(dependencies_.size()),
        heads_(schedule.stages.size(), 0),
        clocks_(schedule.stages.size(), 0),
        sent_(dependencies_.transfers() ? clocks_.size() : 0),
        leaving_(clocks_.size()),
        free_(clocks_.size() * clocks_.size(), 0),
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
    // Both ends post a transfer at its position. It starts when both have posted it and its links are free. The stages
    // continue meanwhile.
    double start = clocks_[stage];
    Cause cause = last_[stage] < 0 ? Cause{} : Cause{static_cast<int>(stage), last_[stage]};
    bool ready = true;
    double* links = nullptr;  // of a transfer that ends here: when they are free
    TransferTime transfer;
    dependencies_.each(action, [&](const Action& before) {
      const Done& done = done_[dependencies_.index(before)];
      ready = ready && done.stage >= 0;
      if (!ready) return;
      const bool crosses = done.stage != static_cast<int>(stage) && (action.is_compute() || action.is_transfer());
      if (crosses) transfer = transfer_time(action.group, before.group, action.replica);
      if (crosses && action.is_transfer()) links = &free(done.stage, stage);
      const double posted = links != nullptr ? std::max(clocks_[stage], *links) : 0;
      if (const double arrival = std::max(posted, done.end) + (crosses ? transfer.seconds : 0); arrival > start) {
        start = arrival;
        if (posted <= done.end) cause = {done.stage, done.position};
      }
    });
    each_unended_send(stage, action, [&](const Action& received) {
      const Done& done = done_[dependencies_.index(received)];
      ready = ready && done.stage >= 0;
      if (!ready || done.end <= start) return;
      start = done.end;
      cause = {done.stage, done.position};
    });
    if (!ready) return false;
    if (action.kind == Action::Kind::send_output || action.kind == Action::Kind::send_gradient)
      start = leave(stage, start, transfer_time(action.peer, action.group, action.replica));
    const double end = start + times_.of(action);
    if (links != nullptr) *links = end - transfer.latency;
    if (!sent_.empty()) note_sends(stage, action);
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

  /// The receive on the other stage in which a send ends.
  static Action end_of(const Action& send) {
    const bool output = send.kind == Action::Kind::send_output;
    return {output ? Action::Kind::receive_input : Action::Kind::receive_gradient, send.peer, send.microbatch,
            send.replica, send.group};
  }

  /// True if a stage waits before the action until the send has ended, as the executor does in the operations
  /// wait_gradients and wait_sent_gradients.
  bool waits_for(const Action& action, const Action& send) const {
    switch (action.kind) {
      case Action::Kind::backward:
      case Action::Kind::backward_data:
        return send.kind == Action::Kind::send_gradient || send.microbatch == action.microbatch;
      case Action::Kind::reduce: return two_replicas_ && send.kind == Action::Kind::send_gradient;
      case Action::Kind::step: return send.kind == Action::Kind::send_gradient;
      default: return false;
    }
  }

  template <class Visit>
  void each_unended_send(std::size_t stage, const Action& action, Visit&& visit) const {
    if (sent_.empty()) return;
    for (const Action& send : sent_[stage])
      if (waits_for(action, send)) visit(end_of(send));
  }

  void note_sends(std::size_t stage, const Action& action) {
    auto& sent = sent_[stage];
    if (action.kind == Action::Kind::send_output || action.kind == Action::Kind::send_gradient)
      sent.push_back(action);
    else
      std::erase_if(sent, [&](const Action& send) { return waits_for(action, send); });
  }

  /// The time of the transfer from one group to another.
  TransferTime transfer_time(int to, int from, int replica) const {
    const auto [first, last] = std::minmax(from, to);
    const EdgeTimes times = times_.of_edge(dependencies_.graph().edge(first, last), replica);
    return from < to ? times.output : times.gradient;
  }

  /// Returns when a transfer that a stage has posted can leave it.
  double leave(std::size_t stage, double posted, const TransferTime& transfer) {
    auto& levels = leaving_[stage];
    const auto level = static_cast<std::size_t>(transfer.level);
    if (levels.size() <= level) levels.resize(level + 1, 0);
    const double start = std::max(posted, levels[level]);
    levels[level] = start + transfer.seconds - transfer.latency;
    return start;
  }

  /// When the links from one stage to another are free.
  double& free(int from, std::size_t to) { return free_[static_cast<std::size_t>(from) * clocks_.size() + to]; }

  Wait wait(int stage) const {
    const Action& at = schedule_.stages[stage][heads_[stage]];
    Wait wait{stage, at, at};
    dependencies_.each(at, [&](const Action& before) {
      if (wait.needed == at && done_[dependencies_.index(before)].stage < 0) wait.needed = before;
    });
    each_unended_send(static_cast<std::size_t>(stage), at, [&](const Action& received) {
      if (wait.needed == at && done_[dependencies_.index(received)].stage < 0) wait.needed = received;
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
  bool keeps_, two_replicas_;
  const ScheduleTimes& times_;
  Dependencies dependencies_;
  std::vector<Done> done_;
  Heads heads_;
  std::vector<double> clocks_;                // by stage: the end of its last action that was not a transfer
  std::vector<std::vector<Action>> sent_;     // by stage: sends that it has not waited for; empty without transfers
  std::vector<std::vector<double>> leaving_;  // by stage and level: when its last transfer has left
  std::vector<double> free_;                  // by sending and receiving stage: see free()
  std::vector<int> last_;                     // by stage: that action's position
  std::vector<std::vector<Cause>> causes_;    // by stage and position
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
