#pragma once

#include "partita/strategies/schedule/schedule.hpp"

namespace partita {

/// What must be done before each action of a schedule, derived from which group feeds which. Actions are numbered, so
/// that tables of their states are vectors.
class Dependencies {
 public:
  /// Throws Error for an action of a group that the graph lacks, or for a transfer between groups that are not
  /// connected.
  Dependencies(const Schedule& schedule, const GroupGraph& graph);

  std::size_t size() const { return present_.size(); }
  std::size_t index(const Action& action) const;
  bool has(const Action& action) const { return present_[index(action)]; }
  int stage(int replica, int group) const { return places_[replica][group]; }
  const GroupGraph& graph() const { return graph_; }
  int microbatches() const { return microbatches_; }
  /// True if transfers between stages are separate actions.
  bool transfers() const { return transfers_; }
  /// The replica of the microbatch's first action; 0 if it has none.
  int replica_of(int microbatch) const { return replica_of_[microbatch]; }

  /// The actions that compute the gradients of a group's inputs and of its weights.
  Action data_gradient(int group, int microbatch, int replica) const {
    return either(Action::Kind::backward, Action::Kind::backward_data, group, microbatch, replica);
  }
  Action filter_gradient(int group, int microbatch, int replica) const {
    return either(Action::Kind::backward, Action::Kind::backward_filter, group, microbatch, replica);
  }

  /// Calls visit(predecessor) for each direct predecessor of an action.
  template <class Visit>
  void each(const Action& a, Visit&& visit) const;

 private:
  using Kind = Action::Kind;

  Action either(Kind first, Kind second, int group, int microbatch, int replica) const {
    const Action one{first, group, microbatch, replica};
    return has(one) ? one : Action{second, group, microbatch, replica};
  }
  /// Returns true if the output of `from` for `to` is sent and received by separate actions.
  bool travels(int from, int to, int replica) const { return transfers_ && stage(replica, from) != stage(replica, to); }

  template <class Visit>
  void each_input(const Action& a, Visit&& visit) const {
    for (const int from : graph_.producers(a.group))
      visit(travels(from, a.group, a.replica) ? Action{Kind::receive_input, a.group, a.microbatch, a.replica, from}
                                              : Action{Kind::forward, from, a.microbatch, a.replica});
  }
  template <class Visit>
  void each_gradient(const Action& a, Visit&& visit) const {
    const Action again{Kind::recompute, a.group, a.microbatch, a.replica};
    visit(has(again) ? again : Action{Kind::forward, a.group, a.microbatch, a.replica});
    for (const int to : graph_.consumers(a.group))
      visit(travels(to, a.group, a.replica) ? Action{Kind::receive_gradient, a.group, a.microbatch, a.replica, to}
                                            : data_gradient(to, a.microbatch, a.replica));
  }

  const GroupGraph& graph_;
  int microbatches_;
  std::vector<std::vector<int>> places_;  // by replica
  int columns_;
  bool transfers_ = false;
  std::vector<int> replica_of_;  // by microbatch
  std::vector<bool> present_;
};

template <class Visit>
void Dependencies::each(const Action& a, Visit&& visit) const {
  switch (a.kind) {
    case Kind::forward: each_input(a, visit); break;
    case Kind::recompute:
    case Kind::send_output: visit(Action{Kind::forward, a.group, a.microbatch, a.replica}); break;
    case Kind::backward:
    case Kind::backward_data: each_gradient(a, visit); break;
    case Kind::backward_filter: visit(Action{Kind::backward_data, a.group, a.microbatch, a.replica}); break;
    case Kind::send_gradient: visit(data_gradient(a.group, a.microbatch, a.replica)); break;
    case Kind::receive_input: visit(Action{Kind::send_output, a.peer, a.microbatch, a.replica, a.group}); break;
    case Kind::receive_gradient: visit(Action{Kind::send_gradient, a.peer, a.microbatch, a.replica, a.group}); break;
    case Kind::reduce:
      for (int m = 0; m < microbatches_; ++m) visit(filter_gradient(a.group, m, replica_of(m)));
      break;
    case Kind::step: visit(Action{Kind::reduce, a.group, 0, a.replica}); break;
  }
}

}  // namespace partita
