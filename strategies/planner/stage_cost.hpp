#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/plan/schedule_cache.hpp"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace partita {

class PlanPricer;

/// Estimates the cost of stage partitions for a schedule without binding each partition. A partition is given by
/// `ends`: the pieces at which its groups end. A piece is one layer. In a model of very many layers, it is a run of
/// layers between two places where less crosses than near them; no stage boundary parts it. The cost of each layer is
/// computed once, for one microbatch, in a plan of one stage. Transfers between stages go from each rank to the rank of
/// equal number in the other stage. The part of a transfer that computation does not hide delays both groups.
class StagePartitionCost {
 public:
  /// `plan` has one stage and one microbatch. `pricer` knows what its layers cost, or learns it.
  /// @pre `made` outlives this object.
  StagePartitionCost(const Plan& plan, PlanPricer& pricer, ScheduleRequest request, ScheduleCache& made);

  int pieces() const { return static_cast<int>(begins_.size()) - 1; }
  /// Returns the layer at which piece `piece` begins; of the number of pieces, the number of layers.
  int layer_of(int piece) const { return begins_[piece]; }
  int groups() const { return static_cast<int>(held_.size()); }
  /// Number of forward and backward actions in the schedule: a measure of the work of makespan().
  std::size_t actions() const { return actions_; }
  /// Seconds of the pieces from `first` up to `end` (excluded) for one microbatch, forward and backward, including
  /// their sends and receives.
  double seconds(int first, int end) const;
  /// A lower bound of seconds(first, end), and of all groups up to `end` that begin earlier.
  double least_seconds(int first, int end) const;
  /// Seconds to transfer everything that crosses a stage boundary before piece `piece`, between the stages that are
  /// farthest apart.
  double boundary_seconds(int piece) const;
  /// Bytes that a rank holds if group `group` consists of the pieces from `first` up to `end` (excluded): weights,
  /// gradients and optimizer state, and the activations of as many microbatches as the schedule has in flight in this
  /// group.
  Index bytes(int group, int first, int end) const;
  /// Bytes of all groups of a stage, on the stage that holds most.
  Index bytes(const std::vector<int>& ends) const;
  /// The same of weights, gradients and optimizer state alone.
  Index kept_bytes(const std::vector<int>& ends) const;
  /// A lower bound of kept_bytes() for all partitions: what the stages hold on average.
  Index least_kept_bytes() const;
  /// A lower bound of work() for all partitions: what microbatches take on average over the stages.
  double least_work() const;
  /// Seconds per step of the stage with the most work: a lower bound for every order of actions.
  double work(const std::vector<int>& ends) const;
  /// Seconds per step: simulates the schedule with its transfers, gradient sums and optimizer updates. A lower bound
  /// instead if that is more than `most`, in less time.
  double makespan(const std::vector<int>& ends, double most = std::numeric_limits<double>::infinity());

 private:
  /// The schedule's groups under one partition: their times, and which group feeds which.
  struct Groups {
    std::vector<GroupTimes> times;
    std::vector<std::pair<int, int>> edges;
    std::vector<EdgeTimes> transfers;  // by edge, in GroupGraph's numbering
  };
  Groups groups(const std::vector<int>& ends, bool edges) const;
  /// Returns the bytes on the stage that holds most, where bytes(group, first, end) are those of a group.
  template <class Bytes>
  Index on_fullest_stage(const std::vector<int>& ends, const Bytes& bytes) const;
  void add_transfers(const std::vector<int>& ends, Groups& groups, bool edges) const;
  double least_makespan(const Groups& groups) const;
  /// Seconds that a stage spends on gradient sums and updates, once per step.
  double after(std::size_t stage, const Groups& groups) const;
  void add_layers(const Plan& plan, PlanPricer& pricer, const std::vector<LayerCost>& costs);
  void add_links(const Plan& plan, const Machine& machine);
  void add_outputs(const Plan& plan);
  void add_parted(const Plan& plan, PlanPricer& pricer, const std::vector<LayerCost>& costs);
  void join_layers();
  void count_actions();
  void count_until_drained(const std::vector<Action>& actions);

  struct Boundary {
    double overlap = 0, latency = 0;
    int level = 0;
    std::vector<double> seconds;  // by layer: to send a microbatch's output
  };
  const Boundary& between(int from, int to) const;
  const Boundary& farthest() const { return between(0, static_cast<int>(between_.size()) - 1); }
  struct Sent {
    std::size_t layer = 0;
    int piece = 0;             // of the layer
    bool back = false;         // whether the gradient returns as well
    std::vector<int> readers;  // pieces; ascending
  };
  ScheduleRequest request_;
  ScheduleCache& made_;
  Schedule schedule_;  // forward and backward actions of all groups and microbatches
  // the edges of the last partition, and the schedule with their communication, as it is simulated
  std::pair<std::vector<std::pair<int, int>>, std::shared_ptr<const SimulationOrder>> run_;
  std::vector<std::vector<int>> places_;
  struct Count {
    std::size_t group = 0;
    int microbatches = 0;
  };
  std::vector<std::vector<Count>> counts_;  // by stage: its groups and the number of microbatches that each runs
  /// What a stage does up to its last action that computes a gradient of inputs.
  struct UntilDrained {
    struct Actions {
      std::size_t group = 0;
      int forward = 0, data = 0, filter = 0;  // the numbers of actions that compute these
    };
    std::size_t first = 0, last = 0;  // the groups of its first action and of that one
    std::vector<Actions> actions;
  };
  std::vector<UntilDrained> until_drained_;      // by stage
  bool all_together_ = true, all_apart_ = true;  // each action backward computes both gradients; each computes one
  std::vector<int> held_;                        // by group: maximum number of microbatches in flight
  std::size_t actions_ = 0;
  std::vector<Boundary> boundaries_;       // by the links between stages
  std::vector<std::vector<int>> between_;  // by pair of stages: index into boundaries_
  double bandwidth_ = 1;                   // between the two replicas of a rank that are farthest apart
  std::vector<int> begins_;                // by piece: its first layer; then the number of layers
  std::vector<double> forward_, data_, filter_, reduce_, step_;  // prefix sums over pieces, in seconds
  // Prefix sums over pieces, in bytes: held for the whole step; held per microbatch in flight; held by recomputed
  // layers of the one microbatch that is being recomputed.
  std::vector<Index> kept_, under_way_, recomputed_;
  /// What a boundary before a piece costs more in one microbatch if it parts an activation from the layer that would
  /// take it along: in the group that ends, and in the one that begins.
  struct Parted {
    GroupTimes before{0, 0, 0}, after{0, 0, 0};
  };
  std::vector<Parted> parted_;            // by piece
  double least_parted_ = 0;               // parted_ adds no less than this to any group on either side
  std::vector<double> boundary_seconds_;  // by piece: seconds to transfer what crosses a stage boundary before it
  std::vector<Sent> sent_;                // the outputs that another piece reads
};

}  // namespace partita
