#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/plan/schedule_cache.hpp"

#include <utility>
#include <vector>

namespace partita {

/// Prices the ways to cut a model into groups of consecutive layers for a schedule, without binding each. A cut is where its groups
/// end. Layers are priced once, for one microbatch, in a plan of one stage; what one stage leaves for another travels from each rank to
/// the same one of the other, and holds both groups up as far as nothing is computed meanwhile.
class StagePartitionCost {
 public:
  /// `plan`: one stage, one microbatch. Refers to `made`.
  StagePartitionCost(const Plan& plan, const Machine& machine, const KernelTimes& times, ScheduleRequest request,
                     ScheduleCache& made);

  int layers() const { return static_cast<int>(forward_.size()) - 1; }
  int groups() const { return static_cast<int>(held_.size()); }
  /// Forwards and backwards of the schedule: a measure of what makespan() takes.
  std::size_t actions() const { return actions_; }
  /// Seconds of the layers from `first` up to `end` for one microbatch, forward and backward, with what they send and receive.
  double seconds(int first, int end) const;
  /// Seconds that what crosses a boundary before a layer travels, between the stages that are farthest apart.
  double crossing(int cut) const;
  /// Bytes that a rank holds of the layers from `first` up to `end`, if they are this group: weights, gradients and state, and
  /// activations of as many microbatches as the schedule has under way there.
  Index bytes(int group, int first, int end) const;
  /// Of all groups of a stage, on the stage where they are most.
  Index bytes(const std::vector<int>& ends) const;
  /// Seconds of a step that the stage works that works longest: no order of actions takes less.
  double work(const std::vector<int>& ends) const;
  /// Seconds of a step: of the schedule with its transfers, sums and updates, simulated.
  double makespan(const std::vector<int>& ends);

 private:
  /// What a cut makes of the schedule's groups: their times, and what feeds what.
  struct Groups {
    std::vector<GroupTimes> times;
    std::vector<std::pair<int, int>> edges;
    std::vector<double> transfers;  // by edge, as GroupGraph numbers them
  };
  Groups groups(const std::vector<int>& ends, bool edges) const;
  void add_transfers(const std::vector<int>& ends, Groups& groups, bool edges) const;
  /// Of a stage once a step.
  double after(std::size_t stage, const Groups& groups) const;
  void add_layers(const Plan& plan, const Machine& machine, const KernelTimes& times);
  void add_links(const Plan& plan, const Machine& machine);
  void add_outputs(const Plan& plan);
  void count_actions();

  struct Link {
    double overlap = 0;
    std::vector<double> seconds;  // by layer: of a microbatch's output
  };
  const Link& link(int from, int to) const;
  const Link& farthest() const { return link(0, static_cast<int>(between_.size()) - 1); }
  struct Sent {
    bool back = false;         // a microbatch's output, and its gradient too
    std::vector<int> readers;  // ascending
  };
  ScheduleRequest request_;
  ScheduleCache& made_;
  Schedule schedule_;  // forwards and backwards of all groups and microbatches
  std::pair<std::vector<std::pair<int, int>>, std::shared_ptr<const Schedule>>
      run_;  // the last cut's edges, and what is run with them
  std::vector<std::vector<int>> places_;
  struct Count {
    std::size_t group = 0;
    int microbatches = 0;
  };
  std::vector<std::vector<Count>> counts_;  // by stage: of its groups
  std::vector<int> held_;                   // by group: microbatches at most
  std::size_t actions_ = 0;
  std::vector<Link> links_;                // that differ
  std::vector<std::vector<int>> between_;  // stages: which of them
  double bandwidth_ = 1;                   // between a rank's two replicas that are farthest apart
  std::vector<double> forward_, data_, filter_, reduce_, step_;  // sums of seconds up to a layer
  // Of bytes for good, of each microbatch under way, and of the one of which layers that recompute are restored.
  std::vector<Index> kept_, under_way_, again_;
  std::vector<double> crossing_;  // by layer: seconds of what crosses a boundary before it
  std::vector<Sent> sent_;        // by layer
};

}  // namespace partita
