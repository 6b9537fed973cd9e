#include "partita/strategies/plan/traffic.hpp"

#include "strategies/plan/layer_ops.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Lists what one layer sends on one rank: the traffic of a microbatch's operations, times the number of microbatches.
class TrafficList {
 public:
  TrafficList(const Plan& plan, const LayerPlan& layer, int replica, int world_rank, int times)
      : plan_(plan),
        layer_(layer),
        replica_(replica),
        grid_(plan.grids[static_cast<std::size_t>(plan.stage_running(layer.group, replica))]),
        world_rank_(world_rank),
        rank_(world_rank - grid_.first_rank()),
        times_(times),
        element_(size_of(plan.workload.dtype)) {}

  /// Adds the traffic of the microbatches inside the layer's stage.
  void add_microbatch() {
    if (times_ > 0 && runs())
      each_microbatch_op(layer_, 0, plan_.workload.training, [this](const StepOp& op) { add_op(op); });
  }

  /// Adds the traffic of the output and its gradient between stages.
  void add_boundaries() {
    if (times_ == 0) return;
    for (const auto& boundary : layer_.sends_to_stages) {
      complete_sums(boundary);
      cross(boundary);
    }
  }

  /// Adds the traffic that completes the pending sums of an output before it goes to another stage.
  void complete_sums(const StageBoundary& boundary) {
    pass_ = Pass::stages;
    if (runs())
      add_steps(Purpose::stages, fmt::format("y to stage {}", plan_.stage_running(boundary.group, replica_)),
                boundary.complete_sums);
  }

  /// Adds the traffic once per step of the buckets that the layer completes.
  void add_reduce(int layer) {
    times_ = 1;
    pass_ = Pass::update;
    if (plan_.workload.training && runs()) reduce(layer);
    purpose_ = Purpose::statistics;
    if (layer_.op->is_loss() && plan_.grids.size() > 1)
      add("loss to all stages", Verb::all_reduce, 0, {1, 2 * size_of(DType::f64)});
  }

  std::vector<PlannedTraffic> list;

 private:
  /// Returns true if the rank belongs to the layer's stage.
  bool runs() const { return rank_ >= 0 && rank_ < grid_.size(); }

  void add_op(const StepOp& op) {
    using enum StepOp::Kind;
    const auto part = static_cast<std::size_t>(op.part);
    pass_ = op.kind == backward_filter ? Pass::backward_filter : Pass::backward_data;
    if (!op.recompute && (op.kind == redistribute_input || op.kind == forward || op.kind == redistribute_output))
      pass_ = Pass::forward;
    switch (op.kind) {
      case redistribute_input: return add_steps(Purpose::input, "x", layer_->redistribute_input[part]);
      case redistribute_output: return add_steps(Purpose::output, "y", layer_->redistribute_output);
      case redistribute_dy: return add_steps(Purpose::output, "dy", layer_->redistribute_dy);
      case redistribute_dx: return add_steps(Purpose::input, "dx", layer_->redistribute_dx[part]);
      case forward: return add_forward();
      case start_backward: return add_start_backward();
      case backward_filter: return add_product(2, "product dw");
      case backward_data: return add_backward_data();
      default: return;  // no traffic
    }
  }

  void add_forward() {
    if (moves(layer_->at.x_halo)) add_halo(Purpose::halo_x, "halo x", x_halo());
    add_collectives(Collective::When::forward);
    add_product(0, "product y");
  }

  void add_start_backward() {
    if (moves(layer_->at.dy_halo) && layer_.needs_any_dx())
      add_halo(Purpose::halo_dy, "halo dy", layer_->at.dy_halo->transfer(rank_));
    add_collectives(Collective::When::backward);
  }

  /// Adds the adjoint of x's halo if dy has no halo: every rank sends back dx for the elements of x that it received.
  void add_backward_data() {
    if (moves(layer_->at.x_halo) && !layer_->at.dy_halo) {
      const TransferPlan& plan = x_halo();
      Index elements = 0;
      for (const auto& recv : plan.recvs) elements += recv.box.volume();
      purpose_ = Purpose::halo_dx;
      add_exchange("halo dx", grid_.all(), plan, {static_cast<Index>(plan.recvs.size()), elements * element_}, rank_);
    }
    add_product(1, "product dx");
  }

  void add_halo(Purpose purpose, const std::string& role, const TransferPlan& plan) {
    purpose_ = purpose;
    add_exchange(role, grid_.all(), plan, plan.traffic(element_), rank_);
  }

  void add_steps(Purpose purpose, const std::string& role, const LayerPlan::Steps& steps) {
    purpose_ = purpose;
    add(role, steps);
  }

  /// Adds the transfer of the output to another stage, and of its gradient back.
  void cross(const StageBoundary& boundary) {
    const auto send = [&](const std::string& role, bool back) {
      const TransferPlan plan = boundary.transfer(world_rank_, back);
      add_exchange(role, 0, plan, plan.traffic(element_), world_rank_);
    };
    pass_ = Pass::stages;
    const int stage = plan_.stage_running(boundary.group, replica_);
    purpose_ = Purpose::stages;
    send(fmt::format("y to stage {}", stage), false);
    if (plan_.workload.training && layer_.has_backward()) send(fmt::format("dy from stage {}", stage), true);
  }

  void add(const std::string& role, Verb verb, AxisSet axes, Traffic traffic) {
    if (times_ == 0 || traffic == Traffic{}) return;
    if (list.empty()) list.reserve(4);  // few layers have more
    list.push_back({role, verb, axes, {traffic.messages * times_, traffic.bytes * times_}, pass_, purpose_, 0, 0});
  }

  /// Adds the traffic of an exchange. `rank` is the number from which the distances of its peers are counted.
  void add_exchange(const std::string& role, AxisSet axes, const TransferPlan& plan, Traffic traffic, int rank) {
    const std::size_t before = list.size();
    add(role, Verb::exchange, axes, traffic);
    if (list.size() == before) return;
    for (const auto* transfers : {&plan.sends, &plan.recvs})
      for (const auto& transfer : *transfers) {
        list.back().below = std::max(list.back().below, rank - transfer.peer);
        list.back().above = std::max(list.back().above, transfer.peer - rank);
      }
  }
  /// Returns true if a halo needs transfers. If all windows stay in their blocks, the halo has no axes.
  static bool moves(const std::optional<Halo>& halo) { return halo && halo->axes() != 0; }
  /// Returns the transfers of x's halo. They are planned once, because the adjoint uses them too.
  const TransferPlan& x_halo() {
    if (!x_halo_) x_halo_ = layer_->at.x_halo->transfer(rank_);
    return *x_halo_;
  }

  void add(const std::string& role, const LayerPlan::Steps& steps) {
    for (const auto& step : steps) {
      if (step.verb != Verb::exchange) {
        add(role, step.verb, step.axes, traffic(step, rank_, element_));
        continue;
      }
      const TransferPlan plan = plan_transfer(step.from, step.to, rank_);
      add_exchange(role, step.axes, plan, plan.traffic(element_), rank_);
    }
  }

  void add_collectives(Collective::When when) {
    purpose_ = Purpose::statistics;
    for (const auto& collective : layer_->at.collectives)
      if (collective.when == when)
        add_collective(collective.role, Verb::all_reduce, collective.axes,
                       collective.layout.owned(rank_).volume() * collective.factor, size_of(DType::f64));
  }

  void add_collective(const std::string& role, Verb verb, AxisSet axes, Index elements, Index element_size) {
    if (elements > 0 && grid_.group_size(axes) > 1) add(role, verb, axes, {1, elements * element_size});
  }

  void add_product(std::size_t which, const std::string& role) {
    if (which >= layer_->at.products.size()) return;
    const ProductPlan& product = layer_->at.products[which];
    purpose_ = Purpose::product;
    add(role, Verb::exchange, grid_.all(), product.traffic(rank_, element_));
    if (!list.empty() && list.back().role == role) {  // the peers may be any ranks of the grid
      list.back().below = rank_;
      list.back().above = grid_.size() - 1 - rank_;
    }
    add(role, product.redistribute_c);
  }

  /// Adds the traffic of the buckets that the layer with this index completes.
  void reduce(int layer) {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    for (const auto& bucket : plan_.buckets) {
      if (bucket.last() != layer) continue;
      const Index elements = plan_.offsets(bucket, rank_).back();
      purpose_ = Purpose::sum;
      add_collective("dw", plan_.sharded_optimizer ? Verb::reduce_scatter : Verb::all_reduce, bucket.axes, elements,
                     master);
      purpose_ = Purpose::update;
      if (plan_.workload.optimizer.needs_norms())
        add_collective("norms", Verb::all_reduce, plan_.norm_axes(bucket),
                       2 * static_cast<Index>(bucket.entries.size()), size_of(DType::f64));
      if (plan_.sharded_optimizer) add_collective("w", Verb::all_gather, bucket.axes, elements, master);
    }
    if (!plan_.second_replica) return;
    purpose_ = Purpose::replicas;
    for (const auto& bucket : plan_.buckets)
      if (bucket.last() == layer && bucket_share(bucket) > 0)
        add("dw of both replicas", Verb::all_reduce, 0, {1, bucket_share(bucket) * master});
    for (std::size_t w = 0; w < layer_->weights.size(); ++w)
      if (const Index elements = layer_->at.w[w].owned(rank_).volume(); !layer_->weights[w].trained && elements > 0)
        add("running statistics of both replicas", Verb::all_reduce, 0, {1, elements * master});
  }

  Index bucket_share(const Bucket& bucket) const { return plan_.share(bucket, rank_).extent(); }

  const Plan& plan_;
  const LayerPlan& layer_;
  int replica_;
  const Grid& grid_;
  int world_rank_, rank_, times_;  // rank in the world, rank in the stage's grid, number of microbatches
  std::optional<TransferPlan> x_halo_;
  Pass pass_ = Pass::forward;
  Purpose purpose_ = Purpose::input;
  Index element_;
};

}  // namespace

std::vector<PlannedTraffic> traffic_in_stage(const Plan& plan, const LayerPlan& layer, int rank) {
  TrafficList list(plan, layer, 0, rank, 1);
  list.add_microbatch();
  for (const auto& boundary : layer.sends_to_stages) list.complete_sums(boundary);
  return std::move(list.list);
}

std::vector<PlannedTraffic> layer_traffic(const Plan& plan, int layer, int rank) {
  const auto i = static_cast<std::size_t>(layer);
  const auto times = [&](const std::vector<LayerPlan>& layers) {
    int count = 0;
    for (int j = 0; j < plan.microbatches; ++j) count += &plan.layers_of(j) == &layers ? 1 : 0;
    return count;
  };
  std::vector<PlannedTraffic> all;
  const auto append = [&](const std::vector<LayerPlan>& layers, int replica) {
    if (layers.empty()) return;
    TrafficList list(plan, layers[i], replica, rank, times(layers));
    list.add_microbatch();
    list.add_boundaries();
    all.insert(all.end(), list.list.begin(), list.list.end());
  };
  append(plan.layers, 0);
  append(plan.remainder_layers, 0);
  if (plan.second_replica) {
    append(plan.second_replica->layers, 1);
    append(plan.second_replica->remainder_layers, 1);
  }
  const auto once = step_traffic(plan, layer, rank);
  all.insert(all.end(), once.begin(), once.end());
  return all;
}

std::vector<PlannedTraffic> step_traffic(const Plan& plan, int layer, int rank) {
  const auto& of_layer = plan.layers[static_cast<std::size_t>(layer)];
  TrafficList once(plan, of_layer, std::max(plan.replica_on(of_layer.group, plan.stage_of_rank(rank)), 0), rank, 0);
  once.add_reduce(layer);
  return std::move(once.list);
}

std::vector<PlannedTraffic> microbatch_traffic(const Plan& plan, int layer, int rank, bool of_remainder) {
  const auto& layers = of_remainder ? plan.remainder_layers : plan.layers;
  TrafficList list(plan, layers[static_cast<std::size_t>(layer)], 0, rank, 1);
  list.add_microbatch();
  list.add_boundaries();
  return std::move(list.list);
}

Traffic rank_traffic(const Plan& plan, int rank) {
  const int stage = plan.stage_of_rank(rank);
  const auto concerns = [&](const LayerPlan& layer) {
    const auto arrives = [&](const StageBoundary& boundary) { return plan.stage_running(boundary.group) == stage; };
    return plan.second_replica || plan.stage_running(layer.group) == stage ||
           layer.op->is_loss() ||  // all stages receive the loss
           std::any_of(layer.sends_to_stages.begin(), layer.sends_to_stages.end(), arrives);
  };
  Traffic total;
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    if (concerns(plan.layers[static_cast<std::size_t>(layer)]))
      for (const auto& item : layer_traffic(plan, layer, rank)) total += item.traffic;
  return total;
}

}  // namespace partita
