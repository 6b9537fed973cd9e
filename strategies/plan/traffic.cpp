#include "partita/strategies/plan/traffic.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Collects what one layer moves on one rank, in the order of execution; the executor's calls mirror this.
class TrafficList {
 public:
  /// Of `times` microbatches that `layer` of a replica is bound for; `crosses`: with what goes to other stages.
  TrafficList(const Plan& plan, const LayerPlan& layer, int replica, int world_rank, int times, bool crosses = true)
      : plan_(plan),
        layer_(layer),
        replica_(replica),
        grid_(plan.grids[static_cast<std::size_t>(plan.stage_running(layer.group, replica))]),
        rank_(world_rank - grid_.first_rank()),
        times_(times),
        crosses_(crosses),
        element_(size_of(plan.workload.dtype)) {
    if (times == 0) return;  // what comes once a step alone is asked for
    if (runs()) {
      forward();
      if (plan.workload.training) {
        pass_ = Pass::backward_data;
        if (layer_.recompute) forward();
        backward();
      }
    }
    for (const auto& boundary : layer_.sends_to_stages) cross(boundary, world_rank);
  }

  /// What the buckets move that this layer completes, once a step.
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
  /// True if the rank is one of the layer's stage.
  bool runs() const { return rank_ >= 0 && rank_ < grid_.size(); }

  /// What goes to another stage, and its gradient that comes back.
  void cross(const StageBoundary& boundary, int world_rank) {
    const auto send = [&](const std::string& role, bool back) {
      const TransferPlan plan = boundary.transfer(world_rank, back);
      add_exchange(role, 0, plan, {static_cast<Index>(plan.sends.size()), plan.sent() * element_}, world_rank);
    };
    pass_ = Pass::stages;
    purpose_ = Purpose::stages;
    const int stage = plan_.stage_running(boundary.group, replica_);
    if (runs()) add(fmt::format("y to stage {}", stage), boundary.complete_sums);
    if (!crosses_) return;
    send(fmt::format("y to stage {}", stage), false);
    if (plan_.workload.training && layer_.has_backward()) send(fmt::format("dy from stage {}", stage), true);
  }

  void add(const std::string& role, Verb verb, AxisSet axes, Traffic traffic) {
    if (times_ == 0 || traffic == Traffic{}) return;
    if (list.empty()) list.reserve(4);  // few layers move more
    list.push_back({role, verb, axes, {traffic.messages * times_, traffic.bytes * times_}, pass_, purpose_, 0, 0});
  }

  /// `traffic` of the transfers of `rank`, from which its peers are counted.
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
  Traffic sent(const TransferPlan& plan) const {
    return {static_cast<Index>(plan.sends.size()), plan.sent() * element_};
  }
  /// Windows that stay in their blocks have a halo, along no axis, which no transfer need be planned for.
  static bool moves(const std::optional<Halo>& halo) { return halo && halo->axes() != 0; }
  /// The exchange of x, planned once: its adjoint goes back on it.
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
      add_exchange(role, step.axes, plan, sent(plan), rank_);
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

  void forward() {
    purpose_ = Purpose::input;
    for (const auto& steps : layer_->redistribute_input) add("x", steps);
    purpose_ = Purpose::halo;
    if (moves(layer_->at.x_halo)) add_exchange("halo x", grid_.all(), x_halo(), sent(x_halo()), rank_);
    add_collectives(Collective::When::forward);
    add_product(0, "product y");
    purpose_ = Purpose::output;
    add("y", layer_->redistribute_output);
  }

  void add_product(std::size_t which, const std::string& role) {
    if (which >= layer_->at.products.size()) return;
    const ProductPlan& product = layer_->at.products[which];
    purpose_ = Purpose::product;
    add(role, Verb::exchange, grid_.all(), product.traffic(rank_, element_));
    if (!list.empty() && list.back().role == role) {  // to and from any rank of the grid
      list.back().below = rank_;
      list.back().above = grid_.size() - 1 - rank_;
    }
    add(role, product.redistribute_c);
  }

  void backward() {
    const bool needs_dx = layer_.needs_any_dx();
    if (!needs_dx && !layer_.trains()) return;
    pass_ = Pass::backward_data;
    purpose_ = Purpose::output;
    add("dy", layer_->redistribute_dy);
    purpose_ = Purpose::halo;
    if (moves(layer_->at.dy_halo) && needs_dx) {
      const TransferPlan plan = layer_->at.dy_halo->transfer(rank_);
      add_exchange("halo dy", grid_.all(), plan, sent(plan), rank_);
    }
    if (moves(layer_->at.x_halo) && !layer_->at.dy_halo && needs_dx) {  // the adjoint: what came goes back
      const TransferPlan& plan = x_halo();
      Index elements = 0;
      for (const auto& recv : plan.recvs) elements += recv.box.volume();
      add_exchange("halo dx", grid_.all(), plan, {static_cast<Index>(plan.recvs.size()), elements * element_}, rank_);
    }
    add_collectives(Collective::When::backward);
    pass_ = Pass::backward_filter;
    add_product(2, "product dw");
    pass_ = Pass::backward_data;
    if (needs_dx) add_product(1, "product dx");
    purpose_ = Purpose::input;
    for (std::size_t i = 0; i < layer_->redistribute_dx.size(); ++i)
      if (layer_->needs_dx[i]) add("dx", layer_->redistribute_dx[i]);
  }

  /// What the buckets move that this layer, of this number, completes.
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
  int rank_, times_;
  bool crosses_;
  std::optional<TransferPlan> x_halo_;
  Pass pass_ = Pass::forward;
  Purpose purpose_ = Purpose::input;
  Index element_;
};

}  // namespace

std::vector<PlannedTraffic> traffic_in_stage(const Plan& plan, const LayerPlan& layer, int rank) {
  return std::move(TrafficList(plan, layer, 0, rank, 1, false).list);
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
    const TrafficList list(plan, layers[i], replica, rank, times(layers));
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
  return std::move(TrafficList(plan, layers[static_cast<std::size_t>(layer)], 0, rank, 1).list);
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
