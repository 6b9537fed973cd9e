#include "partita/strategies/plan.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

#include <algorithm>

namespace partita {

DType master_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool LayerPlan::trains() const {
  return std::any_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.trained; });
}

bool LayerPlan::sends_gradient() const { return trains() || needs_any_dx(); }

bool LayerPlan::needs_any_dx() const {
  return std::any_of(needs_dx.begin(), needs_dx.end(), [](bool needs) { return needs; });
}

namespace {

/// Collects what one layer moves on one rank, in the order of execution; the executor's calls mirror this.
class TrafficList {
 public:
  /// Of `times` microbatches that `layer` of a replica is bound for.
  TrafficList(const Plan& plan, const LayerPlan& layer, int replica, int world_rank, int times)
      : plan_(plan),
        layer_(layer),
        replica_(replica),
        grid_(plan.grids[static_cast<std::size_t>(plan.place(layer.group, replica))]),
        rank_(world_rank - grid_.first_rank()),
        times_(times),
        element_(size_of(plan.workload.dtype)) {
    if (runs()) {
      forward();
      if (plan.workload.training) {
        pass_ = Pass::backward_data;
        if (layer_.recompute) forward();
        backward();
      }
    }
    for (const auto& boundary : layer_.departs) cross(boundary, world_rank);
  }

  /// What the buckets move that this layer completes, once a step.
  void add_reduce() {
    times_ = 1;
    pass_ = Pass::update;
    if (plan_.workload.training && runs()) reduce();
    if (layer_.op->is_loss() && plan_.grids.size() > 1)
      add("loss to all stages", Verb::all_reduce, 0, {1, 2 * size_of(DType::f64)});
  }

  std::vector<PlannedTraffic> list;

 private:
  /// True if the rank is one of the layer's stage.
  bool runs() const { return rank_ >= 0 && rank_ < grid_.size(); }

  /// What goes to another stage, and its gradient that comes back.
  void cross(const Boundary& boundary, int world_rank) {
    const auto send = [&](const std::string& role, bool back) {
      const TransferPlan plan = boundary.transfer(world_rank, back);
      add_exchange(role, 0, plan, {static_cast<Index>(plan.sends.size()), plan.sent() * element_}, world_rank);
    };
    pass_ = Pass::stages;
    const int stage = plan_.place(boundary.group, replica_);
    if (runs()) add(fmt::format("y to stage {}", stage), boundary.settle);
    send(fmt::format("y to stage {}", stage), false);
    if (plan_.workload.training && layer_.sends_gradient()) send(fmt::format("dy from stage {}", stage), true);
  }

  void add(const std::string& role, Verb verb, AxisSet axes, Traffic traffic) {
    if (times_ == 0 || traffic == Traffic{}) return;
    list.push_back({role, verb, axes, {traffic.messages * times_, traffic.bytes * times_}, pass_, 0});
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
  void add_halo(const std::string& role, const Halo& halo) {
    add_exchange(role, grid_.all(), halo.transfer(rank_), halo.traffic(rank_, element_), rank_);
  }

  void add(const std::string& role, const LayerPlan::Steps& steps) {
    for (const auto& step : steps) {
      if (step.verb == Verb::exchange)
        add_exchange(role, step.axes, plan_transfer(step.from.owned(), step.to.owned(), rank_, step.from.grid()),
                     traffic(step, rank_, element_), rank_);
      else
        add(role, step.verb, step.axes, traffic(step, rank_, element_));
    }
  }

  void add_collectives(Collective::When when) {
    for (const auto& collective : layer_.at.collectives)
      if (collective.when == when)
        add_collective(collective.role, Verb::all_reduce, collective.axes,
                       collective.layout.owned(rank_).volume() * collective.factor, size_of(DType::f64));
  }

  void add_collective(const std::string& role, Verb verb, AxisSet axes, Index elements, Index element_size) {
    if (elements > 0 && grid_.group_size(axes) > 1) add(role, verb, axes, {1, elements * element_size});
  }

  void forward() {
    for (const auto& steps : layer_.arrive) add("x", steps);
    if (layer_.at.x_halo) add_halo("halo x", *layer_.at.x_halo);
    add_collectives(Collective::When::forward);
    add_product(0, "product y");
    add("y", layer_.finish);
  }

  void add_product(std::size_t which, const std::string& role) {
    if (which >= layer_.at.products.size()) return;
    const ProductPlan& product = layer_.at.products[which];
    add(role, Verb::exchange, grid_.all(), product.traffic(rank_, element_));
    if (!list.empty() && list.back().role == role) {  // to and from any rank of the grid
      list.back().below = rank_;
      list.back().above = grid_.size() - 1 - rank_;
    }
    add(role, product.finish);
  }

  void backward() {
    const bool needs_dx = layer_.needs_any_dx();
    if (!needs_dx && !layer_.trains()) return;
    pass_ = Pass::backward_data;
    add("dy", layer_.finish_back);
    if (layer_.at.dy_halo && needs_dx) add_halo("halo dy", *layer_.at.dy_halo);
    if (layer_.at.x_halo && !layer_.at.dy_halo && needs_dx) {  // the adjoint: what came goes back
      const auto plan = layer_.at.x_halo->transfer(rank_);
      Index elements = 0;
      for (const auto& recv : plan.recvs) elements += recv.box.volume();
      add_exchange("halo dx", grid_.all(), plan, {static_cast<Index>(plan.recvs.size()), elements * element_}, rank_);
    }
    add_collectives(Collective::When::backward);
    pass_ = Pass::backward_filter;
    add_product(2, "product dw");
    pass_ = Pass::backward_data;
    if (needs_dx) add_product(1, "product dx");
    for (std::size_t i = 0; i < layer_.leave.size(); ++i)
      if (layer_.needs_dx[i]) add("dx", layer_.leave[i]);
  }

  /// What the buckets move that this layer completes.
  void reduce() {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    for (const auto& bucket : plan_.buckets) {
      if (plan_.layers[static_cast<std::size_t>(bucket.last())].name != layer_.name) continue;
      const Index elements = plan_.offsets(bucket, rank_).back();
      add_collective("dw", plan_.distributed ? Verb::reduce_scatter : Verb::all_reduce, bucket.axes, elements, master);
      if (plan_.workload.optimizer.needs_norms())
        add_collective("norms", Verb::all_reduce, plan_.norm_axes(bucket),
                       2 * static_cast<Index>(bucket.entries.size()), size_of(DType::f64));
      if (plan_.mirror && bucket_share(bucket) > 0)
        add("dw of both replicas", Verb::all_reduce, 0, {1, bucket_share(bucket) * master});
      if (plan_.distributed) add_collective("w", Verb::all_gather, bucket.axes, elements, master);
    }
    if (!plan_.mirror) return;
    for (std::size_t w = 0; w < layer_.weights.size(); ++w)
      if (const Index elements = layer_.at.w[w].owned(rank_).volume(); !layer_.weights[w].trained && elements > 0)
        add("running statistics of both replicas", Verb::all_reduce, 0, {1, elements * master});
  }

  Index bucket_share(const Bucket& bucket) const { return plan_.share(bucket, rank_).extent(); }

  const Plan& plan_;
  const LayerPlan& layer_;
  int replica_;
  const Grid& grid_;
  int rank_, times_;
  Pass pass_ = Pass::forward;
  Index element_;
};

}  // namespace

std::vector<PlannedTraffic> Plan::traffic(int layer, int rank) const {
  const auto i = static_cast<std::size_t>(layer);
  std::map<const std::vector<LayerPlan>*, int> times;
  for (int j = 0; j < microbatches; ++j) ++times[&layers_of(j)];
  std::vector<PlannedTraffic> all;
  const auto append = [&](const std::vector<LayerPlan>& bound, int replica) {
    if (const auto found = times.find(&bound); found != times.end()) {
      const TrafficList list(*this, bound[i], replica, rank, found->second);
      all.insert(all.end(), list.list.begin(), list.list.end());
    }
  };
  append(layers, 0);
  append(smaller, 0);
  if (mirror) {
    append(mirror->layers, 1);
    append(mirror->smaller, 1);
  }
  const auto once = step_traffic(layer, rank);
  all.insert(all.end(), once.begin(), once.end());
  return all;
}

std::vector<PlannedTraffic> Plan::step_traffic(int layer, int rank) const {
  const auto& bound = layers[static_cast<std::size_t>(layer)];
  TrafficList once(*this, bound, std::max(replica_on(bound.group, stage_of_rank(rank)), 0), rank, 0);
  once.add_reduce();
  return std::move(once.list);
}

std::vector<PlannedTraffic> Plan::microbatch_traffic(int layer, int rank, bool of_smaller) const {
  const auto& bound = (of_smaller ? smaller : layers)[static_cast<std::size_t>(layer)];
  return std::move(TrafficList(*this, bound, 0, rank, 1).list);
}

Interval Plan::samples(int microbatch) const { return balanced_block({0, workload.batch}, microbatches, microbatch); }

int Plan::replica_of(int microbatch) const {
  return mirror && mirror->takes[static_cast<std::size_t>(microbatch)] ? 1 : 0;
}

int Plan::microbatches_of(int replica) const {
  int count = 0;
  for (int j = 0; j < microbatches; ++j) count += replica_of(j) == replica ? 1 : 0;
  return count;
}

const std::vector<LayerPlan>& Plan::layers_of(int microbatch) const {
  const bool less = samples(microbatch).extent() < samples(0).extent();
  if (replica_of(microbatch) == 1) return less ? mirror->smaller : mirror->layers;
  return less ? smaller : layers;
}

Traffic Plan::traffic(int rank) const {
  Traffic total;
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer)
    for (const auto& item : traffic(layer, rank)) total += item.traffic;
  return total;
}

MemoryUse Plan::memory(int layer, int world_rank) const {
  const auto& bound = layers[static_cast<std::size_t>(layer)];
  if (replica_on(bound.group, stage_of_rank(world_rank)) < 0) return {};
  const int rank = rank_in_stage(world_rank);
  const Index element = size_of(workload.dtype), master = size_of(master_dtype(workload.dtype));
  MemoryUse use;
  for (std::size_t i = 0; i < bound.weights.size(); ++i) {
    const Index elements = bound.at.w[i].owned(rank).volume();
    const bool rounded =
        bound.weights[i].trained && element != master;  // kept twice: the master, and what kernels read
    if (rounded) use[MemoryClass::weights] += elements * element;
    if (!bound.weights[i].trained || !workload.training) use[MemoryClass::weights] += elements * master;
  }
  for (const auto& bucket : buckets) {
    const auto offsets = this->offsets(bucket, rank);
    const Interval share = this->share(bucket, rank);
    for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
      if (bucket.entries[i].layer != layer) continue;
      const Interval place{offsets[i], offsets[i + 1]};
      use[MemoryClass::weights] += place.extent() * master;
      use[MemoryClass::gradients] += place.extent() * element;
      use[MemoryClass::optimizer] +=
          intersect(place, share).extent() * master * static_cast<Index>(workload.optimizer.states().size());
    }
  }
  use[MemoryClass::activations] +=
      bound.y.owned(rank).volume() * element + bound.at.y.owned(rank).volume() * bound.op->keeps().more;
  if (bound.op->keeps().z) use[MemoryClass::activations] += bound.at.y.owned(rank).volume() * element;
  if (!bound.op->is_loss() && !bound.finish.empty())
    use[MemoryClass::activations] += bound.at.y.owned(rank).volume() * element;
  for (std::size_t i = 0; i < bound.arrive.size(); ++i)
    if (!bound.arrive[i].empty()) use[MemoryClass::activations] += bound.at.x[i].owned(rank).volume() * element;
  if (bound.at.x_halo) {
    const auto& needed = bound.at.x_halo->needed[static_cast<std::size_t>(rank)];
    if (!bound.at.x[0].owned(rank).contains(needed)) use[MemoryClass::halos] += needed.volume() * element;
  }
  return use;
}

std::vector<Index> Plan::offsets(const Bucket& bucket, int rank) const {
  std::vector<Index> offsets{0};
  for (const auto& [layer, weight] : bucket.entries) {
    const auto& w = layers[static_cast<std::size_t>(layer)].at.w[static_cast<std::size_t>(weight)];
    const Index elements = w.owned(rank).volume();
    offsets.push_back(offsets.back() + (elements + bucket_alignment - 1) / bucket_alignment * bucket_alignment);
  }
  return offsets;
}

Interval Plan::share(const Bucket& bucket, int rank) const {
  const Interval all{0, offsets(bucket, rank).back()};
  if (!distributed) return all;
  const auto group = grid_of(bucket.last()).group(rank, bucket.axes);
  const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
  return balanced_block(all, static_cast<int>(group.size()), static_cast<int>(place));
}

std::vector<AxisSet> Plan::axis_sets(int stage) const {
  std::vector<AxisSet> sets;
  const auto add = [&](AxisSet axes) {
    if (axes != 0 && std::find(sets.begin(), sets.end(), axes) == sets.end()) sets.push_back(axes);
  };
  const auto add_steps = [&](const LayerPlan::Steps& steps) {
    for (const auto& step : steps)
      if (step.verb != Verb::none && step.verb != Verb::exchange) add(step.axes);
  };
  for (const auto* each : {&layers, &smaller})
    for (const auto& layer : *each) {
      if (replica_on(layer.group, stage) < 0) continue;
      for (const auto& boundary : layer.departs) add_steps(boundary.settle);
      for (const auto& steps : layer.arrive) add_steps(steps);
      for (const auto& collective : layer.at.collectives) add(collective.axes);
      for (const auto& product : layer.at.products) add_steps(product.finish);
      add_steps(layer.finish);
      add_steps(layer.finish_back);
      for (const auto& steps : layer.leave) add_steps(steps);
    }
  for (const auto& bucket : buckets) {
    if (replica_on(layers[static_cast<std::size_t>(bucket.last())].group, stage) < 0) continue;
    add(bucket.axes);
    if (workload.optimizer.needs_norms()) add(norm_axes(bucket));
  }
  return sets;
}

int Plan::place(int group, int replica) const {
  return (replica == 0 ? places : mirror->places)[static_cast<std::size_t>(group)];
}

int Plan::stage_of(int layer, int replica) const {
  return place(layers[static_cast<std::size_t>(layer)].group, replica);
}

int Plan::replica_on(int group, int stage) const {
  for (int replica = 0; replica < replicas(); ++replica)
    if (place(group, replica) == stage) return replica;
  return -1;
}

std::vector<int> Plan::readers(int layer, int stage, int replica) const {
  std::vector<int> all;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (stage_of(static_cast<int>(i), replica) == stage &&
        std::find(layers[i].inputs.begin(), layers[i].inputs.end(), layer) != layers[i].inputs.end())
      all.push_back(static_cast<int>(i));
  return all;
}

bool Plan::needs_output(int layer, int stage, int replica) const {
  const LayerPlan& bound = layers[static_cast<std::size_t>(layer)];
  if (stage_of(layer, replica) == stage && !bound.departs.empty()) return true;
  const auto all = readers(layer, stage, replica);
  return std::any_of(all.begin(), all.end(), [&](int reader) {
    const LayerPlan& other = layers[static_cast<std::size_t>(reader)];
    return other.recompute && !(bound.recompute && other.group == bound.group);  // then it runs once more itself
  });
}

std::uint64_t Plan::hash() const {
  std::string text = fmt::format("{} batch {} {} {} {} {} on", model, workload.batch, name(workload.dtype),
                                 workload.training, workload.optimizer.print(), distributed);
  for (const auto& grid : grids) text += fmt::format(" \"{}\"", grid.print());
  for (const int place : places) text += fmt::format(" {}", place);
  text += '\n';
  auto all = layers;
  all.insert(all.end(), smaller.begin(), smaller.end());
  if (mirror) all.insert(all.end(), mirror->layers.begin(), mirror->layers.end());
  for (const auto& layer : all) {
    text += fmt::format("{} ", layer.group);
    for (const auto& boundary : layer.departs)
      text += fmt::format("{} {} {} ", boundary.group, boundary.from.print(), boundary.to.print());
    text += fmt::format("{} {} {} {} {}", layer.name, layer.op->kind(), layer.op->describe(), layer.shape.print(),
                        layer.y.print());
    for (const int input : layer.inputs) text += fmt::format(" {}", input);
    for (const auto& x : layer.at.x) text += fmt::format(" {}", x.print());
    for (const auto& w : layer.at.w) text += fmt::format(" {}", w.print());
    for (const auto& dx : layer.at.dx) text += fmt::format(" {}", dx.print());
    for (const auto& dw : layer.at.dw) text += fmt::format(" {}", dw.print());
    for (const auto& product : layer.at.products)
      text += fmt::format(" {} {} {} {}{}", product.a_used.print(), product.b_used.print(), product.c_made.print(),
                          product.along, product.panels.size());
    text += layer.recompute ? " recompute\n" : "\n";
  }
  for (const auto& bucket : buckets) text += fmt::format("{} {} ", bucket.axes, bucket.entries.size());
  return partita::hash(text + schedule.print());
}

}  // namespace partita
