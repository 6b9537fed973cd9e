#include "strategies/schedule/simulation_order.hpp"

#include "strategies/schedule/stuck.hpp"

#include <algorithm>
#include <span>

namespace partita {

namespace {

/// True if what an action hands over goes from a group to a later one.
bool is_output(int from, int to) { return from < to; }

}  // namespace

/// Runs the lists: each stage as far as it can go, then the next stage.
class SimulationOrder::Builder {
 public:
  Builder(SimulationOrder& order, const Schedule& schedule, const GroupGraph& graph)
      : order_(order),
        schedule_(schedule),
        two_replicas_(schedule.replicas() > 1),
        dependencies_(schedule, graph),
        done_(dependencies_.size(), -1),
        heads_(schedule.stages.size(), 0),
        awaited_(heads_.size(), -1),
        sent_(dependencies_.transfers() ? heads_.size() : 0) {}

  void run() && {
    for (const auto& actions : schedule_.stages) order_.lengths_.push_back(actions.size());
    run_all_stages(
        schedule_, heads_, [&](std::size_t stage) { return advance(stage); },
        [&](int waiting) { return wait(waiting); });
  }

 private:
  bool advance(std::size_t stage) {
    const auto& actions = schedule_.stages[stage];
    const std::size_t head = heads_[stage], before_waits = order_.waits_.size();
    if (head == actions.size()) return false;
    if (awaited_[stage] >= 0 && done_[awaited_[stage]] < 0) return false;
    const Action& action = actions[head];
    bool ready = true;
    const auto step_of = [&](const Action& before) {
      const std::size_t index = dependencies_.index(before);
      if (ready && done_[index] < 0) awaited_[stage] = static_cast<std::ptrdiff_t>(index);
      ready = ready && done_[index] >= 0;
      return done_[index];
    };
    dependencies_.each(action, [&](const Action& before) {
      const int step = step_of(before);
      if (!ready) return;
      const bool crosses =
          order_.steps_[step].stage != static_cast<int>(stage) && (action.is_compute() || action.is_transfer());
      order_.waits_.push_back({step, crosses ? edge(action.group, before.group) : -1});
    });
    each_unended_send(stage, action, [&](const Action& received) {
      const int step = step_of(received);
      if (ready) order_.waits_.push_back({step, -1});
    });
    if (!ready) {
      order_.waits_.resize(before_waits);
      return false;
    }
    const bool sends = action.kind == Action::Kind::send_output || action.kind == Action::Kind::send_gradient;
    if (!sent_.empty()) note_sends(stage, action);
    done_[dependencies_.index(action)] = static_cast<int>(order_.steps_.size());
    order_.steps_.push_back({action, static_cast<int>(stage), static_cast<int>(head),
                             sends ? edge(action.peer, action.group) : -1, order_.waits_.size()});
    ++heads_[stage];
    return true;
  }

  int edge(int one, int other) const {
    const auto [first, last] = std::minmax(one, other);
    return dependencies_.graph().edge(first, last);
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

  partita::Wait wait(int stage) const {
    const Action& at = schedule_.stages[stage][heads_[stage]];
    partita::Wait wait{stage, at, at};
    const auto look_at = [&](const Action& before) {
      if (wait.needed == at && done_[dependencies_.index(before)] < 0) wait.needed = before;
    };
    dependencies_.each(at, look_at);
    each_unended_send(static_cast<std::size_t>(stage), at, look_at);
    return wait;
  }

  SimulationOrder& order_;
  const Schedule& schedule_;
  bool two_replicas_;
  Dependencies dependencies_;
  std::vector<int> done_;  // by Dependencies::index: the number of the step; -1: not done yet
  Heads heads_;
  std::vector<std::ptrdiff_t> awaited_;    // by stage: an action for which it waited last, as an index; -1: none yet
  std::vector<std::vector<Action>> sent_;  // by stage: sends that it has not waited for; empty without transfers
};

/// One simulation.
class SimulationOrder::Run {
 public:
  /// `keeps`: whether to record when each action ran, and what it waited for.
  Run(const SimulationOrder& order, const ScheduleTimes& times, bool keeps)
      : order_(order),
        times_(times),
        keeps_(keeps),
        ends_(order.steps_.size()),
        clocks_(order.lengths_.size(), 0),
        leaving_(clocks_.size()),
        free_(clocks_.size() * clocks_.size(), 0),
        last_(clocks_.size(), -1) {
    if (!keeps) return;
    causes_.reserve(ends_.size());
    result_.stages.resize(clocks_.size());
    for (std::size_t s = 0; s < clocks_.size(); ++s) result_.stages[s].reserve(order.lengths_[s]);
  }

  Simulation simulation() && {
    run_all();
    measure();
    trace_back();
    return std::move(result_);
  }

  double makespan() && {
    run_all();
    return clocks_.empty() ? 0 : *std::max_element(clocks_.begin(), clocks_.end());
  }

 private:
  void run_all() {
    std::size_t first = 0;
    for (std::size_t number = 0; number < order_.steps_.size(); ++number) {
      const Step& step = order_.steps_[number];
      run(static_cast<int>(number), step, std::span(order_.waits_).subspan(first, step.end_wait - first));
      first = step.end_wait;
    }
  }

  /// Both ends post a transfer at its position. It starts when both have posted it and its links are free. The stages
  /// continue meanwhile.
  void run(int number, const Step& step, std::span<const Wait> waits) {
    const Action& action = step.action;
    double start = clocks_[step.stage];
    int cause = last_[step.stage];
    double* links = nullptr;  // of a transfer that ends here: when they are free
    double latency = 0;
    for (const Wait& wait : waits) {
      const double end = ends_[wait.step];
      double posted = 0, seconds = 0;
      if (wait.edge >= 0) {
        const Step& before = order_.steps_[wait.step];
        const TransferTime transfer = transfer_time(wait.edge, before.action.group, action.group, action.replica);
        seconds = transfer.seconds;
        if (action.is_transfer()) {
          links = &free(before.stage, step.stage);
          latency = transfer.latency;
          posted = std::max(clocks_[step.stage], *links);
        }
      }
      if (const double arrival = std::max(posted, end) + seconds; arrival > start) {
        start = arrival;
        if (posted <= end) cause = wait.step;
      }
    }
    if (step.edge >= 0)
      start = leave(step.stage, start, transfer_time(step.edge, action.group, action.peer, action.replica));
    const double end = start + times_.of(action);
    if (links != nullptr) *links = end - latency;
    if (!action.is_transfer()) {
      clocks_[step.stage] = end;
      last_[step.stage] = number;
    }
    if (keeps_) {
      result_.stages[step.stage].push_back({action, start, end});
      causes_.push_back(cause);
    }
    ends_[number] = end;
  }

  TransferTime transfer_time(int edge, int from, int to, int replica) const {
    const EdgeTimes times = times_.of_edge(edge, replica);
    return is_output(from, to) ? times.output : times.gradient;
  }

  /// Returns when a transfer that a stage has posted can leave it.
  double leave(int stage, double posted, const TransferTime& transfer) {
    auto& levels = leaving_[stage];
    const auto level = static_cast<std::size_t>(transfer.level);
    if (levels.size() <= level) levels.resize(level + 1, 0);
    const double start = std::max(posted, levels[level]);
    levels[level] = start + transfer.seconds - transfer.latency;
    return start;
  }

  /// When the links from one stage to another are free.
  double& free(int from, int to) {
    return free_[static_cast<std::size_t>(from) * clocks_.size() + static_cast<std::size_t>(to)];
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
    int at = -1;
    for (std::size_t stage = 0; stage < clocks_.size(); ++stage)
      if (at < 0 && last_[stage] >= 0 && clocks_[stage] >= result_.makespan) at = last_[stage];
    for (; at >= 0; at = causes_[at])
      result_.critical.emplace_back(order_.steps_[at].stage, order_.steps_[at].position);
    std::reverse(result_.critical.begin(), result_.critical.end());
  }

  const SimulationOrder& order_;
  const ScheduleTimes& times_;
  bool keeps_;
  std::vector<double> ends_;                  // by step
  std::vector<double> clocks_;                // by stage: the end of its last action that was not a transfer
  std::vector<std::vector<double>> leaving_;  // by stage and level: when its last transfer has left
  std::vector<double> free_;                  // by sending and receiving stage: see free()
  std::vector<int> last_;                     // by stage: the number of that action's step; -1: none yet
  std::vector<int> causes_;                   // by step: the one that determined its start; -1: none, its stage began
  Simulation result_;
};

SimulationOrder::SimulationOrder(const Schedule& schedule, const GroupGraph& graph) {
  Builder(*this, schedule, graph).run();
}

Simulation SimulationOrder::simulate(const ScheduleTimes& times) const { return Run(*this, times, true).simulation(); }

double SimulationOrder::makespan(const ScheduleTimes& times) const { return Run(*this, times, false).makespan(); }

}  // namespace partita
