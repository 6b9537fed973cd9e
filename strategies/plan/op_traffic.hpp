#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/plan/step.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace partita {

/// Returns true if the layer needs no messages inside its stage in the operation, on any rank. Most operations need
/// none.
bool is_silent(const LayerPlan& layer, const StepOp& op);

/// Lists what one rank sends for one layer in operations of a step (StepOp): each kind of operation has its messages.
class OpTraffic {
 public:
  /// `layer` is a layer of the plan for either replica and either size of microbatch, `index` its index, `replica` the
  /// replica that runs it, and `world_rank` the rank.
  /// @pre `plan` and `layer` outlive it.
  OpTraffic(const Plan& plan, const LayerPlan& layer, int index, int replica, int world_rank)
      : plan_(plan),
        layer_(layer),
        index_(index),
        replica_(replica),
        grid_(plan.grids[plan.stage_running(layer.group, replica)]),
        world_rank_(world_rank),
        rank_(world_rank - grid_.first_rank()),
        master_(size_of(master_dtype(plan.workload.dtype))) {}

  /// Adds the layer's part of an operation that runs `times` times. Operations of a group are those of its group.
  void add(const StepOp& op, int times = 1) {
    if (const auto pass = pass_of(op)) add(op, *pass, times);
  }
  /// Also lists exchanges in which the rank receives but sends nothing.
  void keep_received() { keeps_received_ = true; }
  /// Adds only the part of send_output inside the layer's stage: the sums that complete the output.
  void add_sums(const StepOp& op);
  /// Adds only the transfer between stages of send_output and send_gradient; for receive_input and receive_gradient
  /// adds what the rank receives.
  void add_transfer(const StepOp& op);

  const std::vector<PlannedTraffic>& list() const { return list_; }
  std::vector<PlannedTraffic> take() && { return std::move(list_); }

 private:
  void add(const StepOp& op, Pass pass, int times);
  void begin(const StepOp& op, Pass pass, int times) {
    op_ = op;
    element_ = size_of(moved_type(plan_, op));
    pass_ = pass;
    times_ = times;
    exchanges_ = 0;
  }
  void add_in_stage();
  void add_once();
  void add_forward();
  void add_start_backward();
  void add_backward_data();
  void add_sums(const StageBoundary& boundary);
  void add_transfer(const StageBoundary& boundary);
  void sum_gradients();
  void add_replicas();
  void add_copies();
  void update();

  void append(PlannedTraffic&& item) {
    if (list_.empty()) list_.reserve(4);  // few layers have more
    list_.push_back(std::move(item));
  }
  void add(Purpose purpose, std::string_view role, Verb verb, AxisSet axes, Traffic traffic);
  void add_exchange(Purpose purpose, std::string_view role, AxisSet axes, std::vector<PeerTraffic> peers, int rank);
  void add_exchange(Purpose purpose, std::string_view role, AxisSet axes, const TransferPlan& plan, bool back,
                    int rank);
  void add_steps(Purpose purpose, std::string_view role, const LayerPlan::Steps& steps);
  void add_statistics(Collective::When when);
  void add_collective(Purpose purpose, std::string_view role, Verb verb, AxisSet axes, Index elements,
                      Index element_size);
  void add_product(std::size_t which, std::string_view role);
  void add_ring(bool back);
  const StageBoundary& boundary() const { return layer_.sends_to_stages[op_.part]; }
  const TransferPlan& x_halo();
  /// Returns true if the rank belongs to the layer's stage.
  bool runs() const { return rank_ >= 0 && rank_ < grid_.size(); }
  /// Calls visit(bucket) for the buckets that the layer completes.
  template <class Visit>
  void each_bucket(Visit&& visit) const {
    for (const auto& bucket : completed_by(plan_.buckets, index_)) visit(bucket);
  }

  const Plan& plan_;
  const LayerPlan& layer_;
  int index_, replica_;
  const Grid& grid_;
  int world_rank_, rank_;  // rank in the world, rank in the stage's grid
  int exchanges_ = 0;      // of the operation, so far
  Index element_ = 0;      // bytes, of the tensors that the operation moves
  Index master_;           // bytes
  bool keeps_received_ = false;
  StepOp op_;
  Pass pass_ = Pass::forward;
  int times_ = 1;
  std::optional<TransferPlan> x_halo_;
  std::vector<PlannedTraffic> list_;
};

}  // namespace partita
