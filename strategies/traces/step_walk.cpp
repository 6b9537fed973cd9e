#include "strategies/traces/step_walk.hpp"

#include "partita/strategies/cost/cost_formula.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/op_traffic.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace partita {

namespace {

const KernelTimes no_times;

/// Walks through the step of one rank.
class StepWalk {
 public:
  StepWalk(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank, StepSink& sink)
      : plan_(plan),
        machine_(machine),
        sink_(sink),
        rank_(rank),
        stage_(plan.stage_of_rank(rank)),
        builder_(plan, machine, times, splits_backward(plan.schedule)),
        kernels_(plan, times, microbatch_actions(plan.workload.training, splits_backward(plan.schedule))),
        operations_(plan, no_times, microbatch_actions(plan.workload.training, splits_backward(plan.schedule))) {}

  void run() && {
    const StepProgram program(plan_, stage_);
    for (const StepOp& op : program.first_ops()) run(op, {});
    for (std::size_t i = 0; i < program.actions().size(); ++i)
      for (const StepOp& op : program.ops(i)) run(op, program.actions()[i]);
    for (const StepOp& op : program.last_ops()) run(op, {});
  }

 private:
  /// A message between stages that is under way.
  struct Pending {
    StepOp::Kind kind;
    int group, microbatch;  // of the action that started it
    int transfer;           // its number
  };

  void run(const StepOp& op, const Action& action) {
    using enum StepOp::Kind;
    const auto& layers = plan_.layers_of(action.microbatch);
    switch (op.kind) {
      case wait_inputs: return wait_for([&](const Pending& each) { return arrives(each, receive_input, action); });
      case wait_gradients:
        return wait_for([&](const Pending& each) {
          return arrives(each, receive_gradient, action) || each.kind == send_gradient ||
                 (each.kind == send_output && each.microbatch == action.microbatch);
        });
      case wait_sent_gradients: return wait_for([](const Pending& each) { return each.kind == send_gradient; });
      case finish_outputs: return wait_for([](const Pending& each) { return each.kind == send_output; });
      case receive_input:
      case receive_gradient:
      case send_output:
      case send_gradient: return start_transfer(op, action, layers);
      case sum_gradients:
      case sum_zero_gradients: return sums_.emplace_back(op, action), void();
      case finish_sums: return run_sums();
      default: break;
    }
    if (pass_of(op) == Pass::update)
      run_once(op, action);
    else if (op.layer >= 0)
      run_layer(op, action, layers[op.layer]);
  }

  void run_layer(const StepOp& op, const Action& action, const LayerPlan& layer) {
    if (pass_of(op) && !is_silent(layer, op)) run_messages(op, layer, op.layer, action);
    compute({layer.name, op.recompute ? "recompute" : name(op.kind), action.microbatch}, work_of(op, layer));
  }
  void compute(const StepLabel& label, const RankWork& work) {
    if (work.seconds > 0 || work.flops > 0) sink_.compute(label, work);
  }

  /// Runs the gradient sums that have started. They end when the rank waits for them, as in the executor: what the
  /// backward pass sends to other stages does not wait for them.
  void run_sums() {
    for (const auto& [op, action] : std::exchange(sums_, {})) run_once(op, action);
  }

  /// Runs an operation that occurs once per step, for its layer or for all layers of its group.
  void run_once(const StepOp& op, const Action& action) {
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) {
      const LayerPlan& layer = plan_.layers[i];
      if (op.layer >= 0 ? i == op.layer : layer.group == action.group) run_messages(op, layer, i, action);
    }
    if (op.kind != StepOp::Kind::update) return;
    const UpdateTerms terms = builder_.update(action.group);
    compute({"", name(op.kind), 0}, {MachineRates(builder_.terms(), machine_).update(terms), 0, terms.bytes});
  }

  /// What a layer computes for one microbatch in each of its passes.
  struct LayerWork {
    RankWork forward, backward_data, backward_filter, recompute;
  };

  /// Returns what the rank computes in an operation. The price counts gradients of weights that are computed together
  /// with those of inputs in the backward pass of the inputs, also if no input's gradient is needed.
  RankWork work_of(const StepOp& op, const LayerPlan& layer) {
    using enum StepOp::Kind;
    switch (op.kind) {
      case forward: return op.recompute ? work_of(layer).recompute : work_of(layer).forward;
      case start_backward: return layer.needs_any_dx() ? RankWork{} : work_of(layer).backward_data;
      case backward_data: return work_of(layer).backward_data;
      case backward_filter: return work_of(layer).backward_filter;
      default: return {};
    }
  }
  const LayerWork& work_of(const LayerPlan& layer) {
    const auto [known, fresh] = work_.try_emplace(&layer);
    if (!fresh) return known->second;
    LayerKernels kernels = kernels_.of(layer), operations = operations_.of(layer);
    const RankTerms terms{grid_rank(), kernels_.on_rank(kernels, grid_rank()), {}};
    const LayerCost cost = MachineRates(builder_.terms(), machine_).layer(terms);
    const KernelTerm term = operations_.on_rank(operations, grid_rank());
    const double recomputed = terms.kernel.recomputes ? cost.forward.compute : 0;
    const auto forwards = [&](Pass pass, double seconds) {
      return RankWork{seconds, term.forwards[pass] * term.flops, term.forwards[pass] * term.bytes};
    };
    const auto backwards = [&](Pass pass, double seconds) {
      const double times = term.backwards[pass];
      return RankWork{seconds, times * term.flops, times * term.backward_bytes + term.added[pass]};
    };
    LayerWork& work = known->second;
    work.forward = forwards(Pass::forward, cost.forward.compute);
    work.forward.bytes += term.added[Pass::forward];
    work.recompute = forwards(Pass::backward_data, recomputed);
    work.backward_data = backwards(Pass::backward_data, cost.backward_data.compute - recomputed);
    work.backward_filter = backwards(Pass::backward_filter, cost.backward_filter.compute);
    return work;
  }
  int grid_rank() const { return rank_ - plan_.grids[stage_].first_rank(); }

  void run_messages(const StepOp& op, const LayerPlan& layer, int index, const Action& action) {
    OpTraffic traffic(plan_, layer, index, action.replica, rank_);
    traffic.keep_received();
    traffic.add(op);
    for (const PlannedTraffic& item : traffic.list()) run_messages({layer.name, item.role, action.microbatch}, item);
  }

  void run_messages(const StepLabel& label, const PlannedTraffic& item) {
    if (item.verb != Verb::exchange) return sink_.collective(label, item, ranks_of(item));
    for (int turn = 0; turn < item.turns; ++turn) {
      std::vector<SizedMessage> sent, received;
      for (const PeerTraffic& peer : item.peers) {
        append(sent, rank_ + peer.peer, peer.sent, balanced_block({0, peer.sent.messages}, item.turns, turn));
        append(received, rank_ + peer.peer, peer.received,
               balanced_block({0, peer.received.messages}, item.turns, turn));
      }
      sink_.exchange(label, sent, received);
    }
  }
  /// Appends some of the messages to or from a peer, which count as equally large, to a byte.
  static void append(std::vector<SizedMessage>& messages, int peer, const Traffic& traffic, Interval which) {
    for (Index i = which.lo; i < which.hi; ++i) {
      const Interval bytes =
          balanced_block({0, traffic.bytes}, static_cast<int>(traffic.messages), static_cast<int>(i));
      messages.push_back({peer, static_cast<double>(bytes.extent())});
    }
  }

  /// Returns the ranks of the world that take part in a collective.
  std::vector<int> ranks_of(const PlannedTraffic& item) const {
    const Grid& grid = plan_.grids[stage_];
    std::vector<int> ranks;
    if (item.axes != 0) {
      ranks = grid.group(grid_rank(), item.axes);
      for (int& rank : ranks) rank += grid.first_rank();
    } else if (const auto other = other_rank(plan_, item, rank_)) {
      const auto [first, last] = std::minmax({rank_, *other});
      ranks = {first, last};
    } else {
      ranks.resize(static_cast<std::size_t>(plan_.ranks()));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    return ranks;
  }

  void start_transfer(const StepOp& op, const Action& action, const std::vector<LayerPlan>& layers) {
    using enum StepOp::Kind;
    const LayerPlan& layer = layers[op.layer];
    const bool sends = op.kind == send_output || op.kind == send_gradient;
    OpTraffic sums(plan_, layer, op.layer, action.replica, rank_);
    if (op.kind == send_output) sums.add_sums(op);
    for (const PlannedTraffic& item : sums.list()) run_messages({layer.name, item.role, action.microbatch}, item);
    OpTraffic transfer(plan_, layer, op.layer, action.replica, rank_);
    transfer.add_transfer(op);
    for (const PlannedTraffic& item : transfer.list())
      for (const PeerTraffic& peer : item.peers) {
        std::vector<SizedMessage> messages;
        append(messages, rank_ + peer.peer, peer.sent, {0, peer.sent.messages});
        for (const SizedMessage& each : messages) {
          sink_.start_transfer({layer.name, item.role, action.microbatch}, sends, each);
          pending_.push_back({op.kind, action.group, action.microbatch, transfers_++});
        }
      }
  }

  static bool arrives(const Pending& each, StepOp::Kind kind, const Action& action) {
    return each.kind == kind && each.group == action.group && each.microbatch == action.microbatch;
  }
  template <class Waits>
  void wait_for(const Waits& waits) {
    for (const Pending& each : pending_)
      if (waits(each)) sink_.wait_for_transfer(each.transfer);
    std::erase_if(pending_, waits);
  }

  const Plan& plan_;
  const Machine& machine_;
  StepSink& sink_;
  int rank_, stage_;
  CostTermBuilder builder_;
  KernelTerms kernels_, operations_;  // by measured times where there are any, and by operations
  std::map<const LayerPlan*, LayerWork> work_;
  std::vector<Pending> pending_;
  int transfers_ = 0;
  std::vector<std::pair<StepOp, Action>> sums_;  // that have started
};

}  // namespace

void walk_step(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank, StepSink& sink) {
  StepWalk(plan, machine, times, rank, sink).run();
}

double seconds_of_computing(const Plan& plan, const Machine& machine, const KernelTimes& times) {
  Machine free = machine;  // so that the slowest rank is the one that computes longest
  for (Level& level : free.levels) {
    level.latency.value = 0;
    level.bandwidth.value = std::numeric_limits<double>::infinity();
    level.verbs.clear();
  }
  const Cost cost = CostFormula(plan, free, times).simulated(free);
  CostTermBuilder builder(plan, free, times, splits_backward(plan.schedule));
  const auto groups_of = [&](const std::vector<LayerCost>& layers) {
    std::vector<GroupTimes> groups(plan.stage_of_group.size(), {0, 0, 0, 0, 0});
    for (std::size_t i = 0; i < layers.size(); ++i) {
      GroupTimes& group = groups[plan.layers[i].group];
      group.forward += layers[i].forward.compute;
      group.backward_data += layers[i].backward_data.compute;
      group.backward_filter += layers[i].backward_filter.compute;
    }
    for (int i = 0; i < static_cast<int>(groups.size()); ++i)
      groups[i].step = MachineRates(builder.terms(), free).update(builder.update(i));
    return groups;
  };
  ScheduleTimes of_groups{.groups = groups_of(cost.layers)};
  if (!cost.second_layers.empty()) of_groups.second_groups = groups_of(cost.second_layers);
  return simulate(plan.schedule, graph_of(plan), of_groups).makespan;
}

double rank_flops(const Plan& plan, int rank) {
  const KernelTerms kernels(plan, no_times, microbatch_actions(plan.workload.training, splits_backward(plan.schedule)));
  const int stage = plan.stage_of_rank(rank);
  std::map<const std::vector<LayerPlan>*, double> of_microbatch;
  double all = 0;
  for (int microbatch = 0; microbatch < plan.microbatches; ++microbatch) {
    const auto& layers = plan.layers_of(microbatch);
    const auto [known, fresh] = of_microbatch.try_emplace(&layers);
    for (const LayerPlan& layer : fresh ? std::span(layers) : std::span<const LayerPlan>()) {
      if (plan.stage_running(layer.group, plan.replica_of(microbatch)) != stage) continue;
      LayerKernels of = kernels.of(layer);
      const KernelTerm term = kernels.on_rank(of, plan.rank_in_stage(rank));
      for (const Pass pass : microbatch_passes)
        known->second += term.flops * (term.forwards[pass] + term.backwards[pass]);
    }
    all += known->second;
  }
  return all;
}

}  // namespace partita
