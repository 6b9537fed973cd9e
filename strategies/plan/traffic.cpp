#include "strategies/plan/traffic.hpp"

#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/op_traffic.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace partita {

namespace {

/// An operation of a layer in a rank's step that may have messages.
struct LayerOp {
  /// The layers of the microbatch's replica and size. For operations once per step, the plan's.
  const std::vector<LayerPlan>* layers;
  int replica;
  StepOp op;
  int times;
};

/// Calls visit(layer, LayerOp) for the operations of a stage's step that may have messages.
template <class Visit>
void each_sending_op(const StepProgram& program, Visit&& visit) {
  const Plan& plan = program.plan();
  const auto add = [&](const std::vector<LayerPlan>& layers, const Action& action, const StepOp& op, int times) {
    const auto pass = pass_of(op);
    if (!pass) return;
    const LayerOp sending{pass == Pass::update ? &plan.layers : &layers, action.replica, op, times};
    if (op.layer >= 0) return visit(op.layer, sending);
    for (int i = 0; i < static_cast<int>(layers.size()); ++i)
      if (layers[i].group == action.group) visit(i, sending);
  };
  for (const auto& list : program.lists()) {
    const auto& layers = plan.layers_of(list.action.microbatch);
    for (const StepOp& op : list.ops) add(layers, list.action, op, list.times);
  }
  for (const StepOp& op : program.last_ops()) add(plan.layers, {}, op, 1);
}

/// Returns the place of a part of a layer's traffic in layer_traffic().
int part_of(const Plan& plan, const LayerOp& op) {
  if (pass_of(op.op) == Pass::update) return 4;
  const bool whole = op.layers == &plan.layers || (plan.second_replica && op.layers == &plan.second_replica->layers);
  return 2 * op.replica + (whole ? 0 : 1);
}

/// Adds what a rank sends in operations of one part of a layer's traffic. Operations that run in several lists are
/// counted together.
void add_traffic(const Plan& plan, int layer, int rank, std::span<const LayerOp> ops,
                 std::vector<PlannedTraffic>& all) {
  if (ops.empty()) return;
  OpTraffic traffic(plan, (*ops.front().layers)[layer], layer, ops.front().replica, rank);
  for (auto op = ops.begin(); op != ops.end(); ++op) {
    const auto same = [&](const LayerOp& other) { return other.op == op->op; };
    if (std::any_of(ops.begin(), op, same)) continue;
    int times = 0;
    for (auto other = op; other != ops.end(); ++other) times += same(*other) ? other->times : 0;
    traffic.add(op->op, times);
  }
  const auto items = std::move(traffic).take();
  all.insert(all.end(), items.begin(), items.end());
}

}  // namespace

std::vector<PlannedTraffic> layer_traffic(const Plan& plan, int layer, int rank) {
  std::array<std::vector<LayerOp>, 5> parts;
  each_sending_op(StepProgram(plan, plan.stage_of_rank(rank)), [&](int of, const LayerOp& op) {
    if (of == layer) parts[part_of(plan, op)].push_back(op);
  });
  std::vector<PlannedTraffic> all;
  for (const auto& ops : parts) add_traffic(plan, layer, rank, ops, all);
  return all;
}

std::optional<int> other_rank(const Plan& plan, const PlannedTraffic& item, int rank) {
  const int stage = plan.stage_of_rank(rank), place = plan.rank_in_stage(rank);
  if (item.purpose == Purpose::replicas)
    return plan.grids[plan.grids.size() - 1 - static_cast<std::size_t>(stage)].first_rank() + place;
  if (item.purpose != Purpose::copies) return std::nullopt;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.other_copy >= 0 && bucket.last() == item.op.layer) return plan.rank_of_other_copy(bucket, place);
  return std::nullopt;
}

double sent_bytes(const Plan& plan, const PlannedTraffic& item, int rank) {
  const auto bytes = static_cast<double>(item.traffic.bytes);
  if (item.verb == Verb::exchange) return bytes;
  const Grid& grid = plan.grids[plan.stage_of_rank(rank)];
  const double ranks = item.axes != 0 ? grid.group_size(item.axes) : other_rank(plan, item, rank) ? 2 : plan.ranks();
  return (item.verb == Verb::all_reduce ? 2 : 1) * (ranks - 1) / ranks * bytes;
}

void each_traffic(const StepProgram& program, int rank, const std::function<void(const PlannedTraffic&)>& visit) {
  std::optional<OpTraffic> traffic;  // of successive operations of one layer
  const LayerPlan* of = nullptr;
  const auto visit_all = [&] {
    if (!traffic) return;
    for (const auto& item : traffic->list()) visit(item);
  };
  each_sending_op(program, [&](int layer, const LayerOp& op) {
    const LayerPlan* next = &(*op.layers)[layer];
    if (is_silent(*next, op.op)) return;
    if (next != of) {
      visit_all();
      of = next;
      traffic.emplace(program.plan(), *next, layer, op.replica, rank);
    }
    traffic->add(op.op, op.times);
  });
  visit_all();
}

RankTraffic rank_traffic(const StepProgram& program, int rank) {
  RankTraffic total;
  each_traffic(program, rank, [&](const PlannedTraffic& item) {
    total.counted += item.traffic;
    total.sent += sent_bytes(program.plan(), item, rank);
  });
  return total;
}

RankTraffic rank_traffic(const Plan& plan, int rank) {
  return rank_traffic(StepProgram(plan, plan.stage_of_rank(rank)), rank);
}

std::vector<PlannedTraffic> microbatch_traffic(const Plan& plan, int layer, int rank, bool of_remainder,
                                               bool received) {
  const LayerPlan& bound = (of_remainder ? plan.remainder_layers : plan.layers)[layer];
  OpTraffic traffic(plan, bound, layer, 0, rank);
  if (received) traffic.keep_received();
  each_microbatch_op(bound, layer, microbatch_actions(plan.workload.training, splits_backward(plan.schedule)),
                     [&](const StepOp& op) { traffic.add(op); });
  return std::move(traffic).take();
}

std::vector<PlannedTraffic> step_traffic(const Plan& plan, int layer, int rank) {
  const LayerPlan& bound = plan.layers[layer];
  OpTraffic traffic(plan, bound, layer, std::max(plan.replica_on(bound.group, plan.stage_of_rank(rank)), 0), rank);
  each_step_op(plan, layer, [&](const StepOp& op) { traffic.add(op); });
  return std::move(traffic).take();
}

}  // namespace partita
