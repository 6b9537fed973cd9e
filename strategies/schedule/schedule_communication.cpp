#include "partita/strategies/schedule/simulate.hpp"
#include "strategies/schedule/dependencies.hpp"

#include <algorithm>
#include <tuple>

namespace partita {

namespace {

using Kind = Action::Kind;

/// An action and its place in the global order: by time; at equal times, transfers and reductions come before
/// computation.
struct Placed {
  double time = 0;
  enum { transfer, reduce, compute } what = compute;
  std::tuple<int, int, int, int> tie{};  ///< equal at both ends of a transfer
  Action action;

  bool operator<(const Placed& other) const {
    return std::tie(time, what, tie) < std::tie(other.time, other.what, other.tie);
  }
};

/// Orders all actions of all stages by the time that they would have if each action took one unit.
class Placement {
 public:
  Placement(const Schedule& schedule, const GroupGraph& graph)
      : graph_(graph), dependencies_(schedule, graph), stages_(schedule.stages.size()) {
    const Simulation run = simulate(schedule, graph, equal_times(graph.groups(), 1, {}, 0));
    last_.assign(static_cast<std::size_t>(graph.groups()), 0);
    for (std::size_t stage = 0; stage < stages_.size(); ++stage)
      for (const auto& [action, start, end] : run.stages[stage]) {
        stages_[stage].push_back({start, Placed::compute, {}, action});
        if (action.kind == Kind::forward) send_output(action, end);
        if (action.kind == Kind::backward || action.kind == Kind::backward_data) send_gradient(action, end);
        double& last = last_[action.group];
        last = std::max(last, end);
      }
  }

  void add_reduce(int replica, int group, int stage) {
    stages_[stage].push_back({last_[group], Placed::reduce, {group, 0, 0, 0}, {Kind::reduce, group, 0, replica}});
  }

  std::vector<std::vector<Action>> lists() {
    std::vector<std::vector<Action>> lists;
    for (auto& placed : stages_) {
      std::sort(placed.begin(), placed.end());
      auto& list = lists.emplace_back();
      list.reserve(placed.size());
      for (const auto& each : placed) list.push_back(each.action);
    }
    return lists;
  }

 private:
  void send_output(const Action& a, double end) {
    for (const int to : graph_.consumers(a.group)) pair(a, to, Kind::send_output, Kind::receive_input, end);
  }
  void send_gradient(const Action& a, double end) {
    for (const int to : graph_.producers(a.group)) pair(a, to, Kind::send_gradient, Kind::receive_gradient, end);
  }

  void pair(const Action& a, int to, Kind send, Kind receive, double end) {
    const int here = dependencies_.stage(a.replica, a.group), there = dependencies_.stage(a.replica, to);
    if (here == there) return;
    const std::tuple tie(a.microbatch, static_cast<int>(send), a.group, to);
    stages_[here].push_back({end, Placed::transfer, tie, {send, a.group, a.microbatch, a.replica, to}});
    stages_[there].push_back({end, Placed::transfer, tie, {receive, to, a.microbatch, a.replica, a.group}});
  }

  const GroupGraph& graph_;
  Dependencies dependencies_;
  std::vector<std::vector<Placed>> stages_;
  std::vector<double> last_;  // by group: the end of its last action
};

}  // namespace

Schedule with_communication(const Schedule& schedule, const GroupGraph& graph, bool training,
                            std::vector<std::vector<int>> places) {
  Placement placement(schedule, graph);
  if (!training) return {schedule.kind, placement.lists()};
  if (places.empty()) places = schedule.stages_of_groups();
  const auto each_place = [&](auto&& visit) {
    for (std::size_t replica = 0; replica < places.size(); ++replica)
      for (std::size_t group = 0; group < places[replica].size(); ++group)
        if (const int stage = places[replica][group]; stage >= 0)
          visit(static_cast<int>(replica), static_cast<int>(group), stage);
  };
  each_place([&](int replica, int group, int stage) { placement.add_reduce(replica, group, stage); });
  Schedule whole{schedule.kind, placement.lists()};
  each_place([&](int replica, int group, int stage) {
    whole.stages[stage].push_back({Kind::step, group, 0, replica});
  });
  return whole;
}

}  // namespace partita
