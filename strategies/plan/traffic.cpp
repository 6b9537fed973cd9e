#include "partita/strategies/plan/traffic.hpp"

#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/op_traffic.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace partita {

namespace {

/// An operation of a layer in a rank's step that may have messages.
struct LayerOp {
  int layer = 0;
  Pass pass = Pass::forward;
  int replica = 0;
  /// The layers of the microbatch's replica and size. For operations once per step, the plan's.
  const std::vector<LayerPlan>* layers = nullptr;
  StepOp op;
  int times = 0;

  bool is_once() const { return pass == Pass::update; }
  bool is_remainder(const Plan& plan) const {
    return layers != &plan.layers && (!plan.second_replica || layers != &plan.second_replica->layers);
  }
};

/// Lists the operations of a stage's step by layer, each with the number of times that it runs.
class LayerOps {
 public:
  explicit LayerOps(const StepProgram& program) : plan_(program.plan()) {
    for (const auto& list : program.lists()) {
      const auto& layers = plan_.layers_of(list.action.microbatch);
      for (const StepOp& op : list.ops) add(op, list.action, layers, list.times);
    }
    for (const StepOp& op : program.last_ops()) add(op, {}, plan_.layers, 1);
    sort();
  }

  /// Calls visit(ops) for the operations of each layer for each replica and size of microbatch, and once per step.
  template <class Visit>
  void each(Visit&& visit) const {
    for (auto begin = ops_.begin(); begin != ops_.end();) {
      const auto end =
          std::find_if(begin, ops_.end(), [&, first = key(*begin)](const LayerOp& op) { return key(op) != first; });
      visit(std::span(begin, end));
      begin = end;
    }
  }

 private:
  /// Returns the place of an operation in the order by layer, once per step or not, replica and size of microbatch.
  std::size_t key(const LayerOp& op) const {
    return static_cast<std::size_t>(op.layer) * kinds + (op.is_once() ? 4 : 0) + (op.replica == 1 ? 2 : 0) +
           (op.is_remainder(plan_) ? 1 : 0);
  }

  /// Sorts the operations by key, and keeps the order of operations with equal keys.
  void sort() {
    std::vector<std::size_t> places(plan_.layers.size() * kinds + 1, 0);
    for (const LayerOp& op : ops_) ++places[key(op) + 1];
    std::partial_sum(places.begin(), places.end(), places.begin());
    std::vector<LayerOp> sorted(ops_.size());
    for (const LayerOp& op : ops_) sorted[places[key(op)]++] = op;
    ops_ = std::move(sorted);
  }

  void add(const StepOp& op, const Action& action, const std::vector<LayerPlan>& layers, int times) {
    const auto pass = pass_of(op);
    if (!pass) return;
    const auto& of = pass == Pass::update ? plan_.layers : layers;
    if (op.layer >= 0) return ops_.push_back({op.layer, *pass, action.replica, &of, op, times});
    for (int i = 0; i < static_cast<int>(layers.size()); ++i)
      if (layers[static_cast<std::size_t>(i)].group == action.group)
        ops_.push_back({i, *pass, action.replica, &of, op, times});
  }

  static constexpr std::size_t kinds = 8;  // of operations of one layer, see key()

  const Plan& plan_;
  std::vector<LayerOp> ops_;
};

/// Returns what a rank sends in operations of one layer. Operations that run in several lists are counted together.
std::vector<PlannedTraffic> traffic_of(const Plan& plan, std::span<const LayerOp> ops, int rank) {
  const LayerOp& first = ops.front();
  OpTraffic traffic(plan, (*first.layers)[static_cast<std::size_t>(first.layer)], first.layer, first.replica, rank);
  for (auto op = ops.begin(); op != ops.end(); ++op) {
    const auto same = [&](const LayerOp& other) { return other.op == op->op; };
    if (std::any_of(ops.begin(), op, same)) continue;
    int times = 0;
    for (auto other = op; other != ops.end(); ++other) times += same(*other) ? other->times : 0;
    traffic.add(op->op, times);
  }
  return std::move(traffic).take();
}

}  // namespace

std::optional<Pass> pass_of(const StepOp& op) {
  using enum StepOp::Kind;
  switch (op.kind) {
    case redistribute_input:
    case forward:
    case redistribute_output: return op.recompute ? Pass::backward_data : Pass::forward;
    case redistribute_dy:
    case start_backward:
    case backward_data:
    case redistribute_dx: return Pass::backward_data;
    case backward_filter: return Pass::backward_filter;
    case send_output:
    case receive_input:
    case send_gradient:
    case receive_gradient: return Pass::stages;
    case sum_gradients:
    case sum_zero_gradients:
    case add_replicas:
    case update:
    case share_loss: return Pass::update;
    default: return std::nullopt;
  }
}

std::vector<PlannedTraffic> layer_traffic(const Plan& plan, int layer, int rank) {
  std::vector<PlannedTraffic> all;
  LayerOps(StepProgram(plan, plan.stage_of_rank(rank))).each([&](std::span<const LayerOp> ops) {
    if (ops.front().layer != layer) return;
    const auto items = traffic_of(plan, ops, rank);
    all.insert(all.end(), items.begin(), items.end());
  });
  return all;
}

std::vector<Traffic> rank_traffic(const StepProgram& program, std::span<const int> ranks) {
  std::vector<Traffic> totals(ranks.size());
  LayerOps(program).each([&](std::span<const LayerOp> ops) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (const auto& item : traffic_of(program.plan(), ops, ranks[i])) totals[i] += item.traffic;
  });
  return totals;
}

Traffic rank_traffic(const Plan& plan, int rank) {
  return rank_traffic(StepProgram(plan, plan.stage_of_rank(rank)), std::array{rank}).front();
}

std::vector<PlannedTraffic> microbatch_traffic(const Plan& plan, int layer, int rank, bool of_remainder) {
  const LayerPlan& bound = (of_remainder ? plan.remainder_layers : plan.layers)[static_cast<std::size_t>(layer)];
  OpTraffic traffic(plan, bound, layer, 0, rank);
  each_microbatch_op(bound, layer, microbatch_actions(plan.workload.training, splits_backward(plan.schedule)),
                     [&](const StepOp& op) { traffic.add(op); });
  return std::move(traffic).take();
}

std::vector<PlannedTraffic> step_traffic(const Plan& plan, int layer, int rank) {
  const LayerPlan& bound = plan.layers[static_cast<std::size_t>(layer)];
  OpTraffic traffic(plan, bound, layer, std::max(plan.replica_on(bound.group, plan.stage_of_rank(rank)), 0), rank);
  each_step_op(plan, layer, [&](const StepOp& op) { traffic.add(op); });
  return std::move(traffic).take();
}

}  // namespace partita
