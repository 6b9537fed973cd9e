#include "partita/strategies/plan.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

#include <algorithm>

namespace partita {

DType master_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool LayerPlan::trains() const {
  return std::any_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.trained; });
}

bool LayerPlan::needs_any_dx() const {
  return std::any_of(needs_dx.begin(), needs_dx.end(), [](bool needs) { return needs; });
}

namespace {

/// Collects what one layer moves on one rank, in the order of execution; the executor's calls mirror this.
class TrafficList {
 public:
  TrafficList(const Plan& plan, const LayerPlan& layer, int rank) : plan_(plan), layer_(layer), rank_(rank) {
    element_ = size_of(plan.workload.dtype);
    forward();
    if (!plan.workload.training) return;
    backward();
    reduce();
  }

  std::vector<PlannedTraffic> list;

 private:
  void add(const std::string& role, Verb verb, AxisSet axes, Traffic traffic) {
    if (!(traffic == Traffic{})) list.push_back({role, verb, axes, traffic});
  }

  void add(const std::string& role, const LayerPlan::Steps& steps) {
    for (const auto& step : steps) add(role, step.verb, step.axes, traffic(step, rank_, element_));
  }

  void add_collective(const std::string& role) {
    for (const auto& collective : layer_.at.collectives)
      if (collective.role == role)
        add_all_reduce(role, collective.axes, collective.layout.owned(rank_).volume() * collective.factor,
                       size_of(DType::f64));
  }

  void add_all_reduce(const std::string& role, AxisSet axes, Index elements, Index element_size) {
    if (elements > 0 && plan_.grid.group_size(axes) > 1)
      add(role, Verb::all_reduce, axes, {1, elements * element_size});
  }

  void forward() {
    for (const auto& steps : layer_.arrive) add("x", steps);
    if (layer_.at.x_halo) add("halo x", Verb::exchange, plan_.grid.all(), layer_.at.x_halo->traffic(rank_, element_));
    add_collective("statistics forward");
    add_collective("loss");
    add("y", layer_.finish);
  }

  void backward() {
    const bool needs_dx = layer_.needs_any_dx();
    if (!needs_dx && !layer_.trains()) return;
    add("dy", layer_.finish_back);
    if (layer_.at.dy_halo && needs_dx)
      add("halo dy", Verb::exchange, plan_.grid.all(), layer_.at.dy_halo->traffic(rank_, element_));
    if (layer_.at.x_halo && !layer_.at.dy_halo && needs_dx) {  // the adjoint: what came goes back
      const auto plan = layer_.at.x_halo->transfer(rank_);
      Index elements = 0;
      for (const auto& recv : plan.recvs) elements += recv.box.volume();
      add("halo dx", Verb::exchange, plan_.grid.all(), {static_cast<Index>(plan.recvs.size()), elements * element_});
    }
    add_collective("statistics backward");
    for (std::size_t i = 0; i < layer_.leave.size(); ++i)
      if (layer_.needs_dx[i]) add("dx", layer_.leave[i]);
  }

  void reduce() {
    for (std::size_t i = 0; i < layer_.weights.size(); ++i)
      if (layer_.weights[i].trained)
        add_all_reduce("dw " + layer_.weights[i].name, layer_.at.dw[i].partial(), layer_.at.dw[i].owned(rank_).volume(),
                       size_of(master_dtype(plan_.workload.dtype)));
  }

  const Plan& plan_;
  const LayerPlan& layer_;
  int rank_;
  Index element_;
};

}  // namespace

std::vector<PlannedTraffic> Plan::traffic(int layer, int rank) const {
  return TrafficList(*this, layers[static_cast<std::size_t>(layer)], rank).list;
}

Traffic Plan::traffic(int rank) const {
  Traffic total;
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer)
    for (const auto& item : traffic(layer, rank)) total += item.traffic;
  return total;
}

MemoryUse Plan::memory(int layer, int rank) const {
  const auto& bound = layers[static_cast<std::size_t>(layer)];
  const Index element = size_of(workload.dtype), master = size_of(master_dtype(workload.dtype));
  MemoryUse use;
  for (std::size_t i = 0; i < bound.weights.size(); ++i) {
    const Index elements = bound.at.w[i].owned(rank).volume();
    const bool rounded =
        bound.weights[i].trained && element != master;  // kept twice: the master, and what kernels read
    use[MemoryClass::weights] += elements * (rounded ? master + element : master);
    if (!bound.weights[i].trained || !workload.training) continue;
    use[MemoryClass::gradients] += elements * element;
    if (workload.optimizer.momentum > 0) use[MemoryClass::optimizer] += elements * master;
  }
  use[MemoryClass::activations] +=
      bound.y.owned(rank).volume() * element + bound.at.y.owned(rank).volume() * bound.op->keeps();
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

MemoryUse Plan::memory(int rank) const {
  MemoryUse total;
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    const auto use = memory(layer, rank);
    for (std::size_t i = 0; i < memory_classes; ++i) total.bytes[i] += use.bytes[i];
  }
  return total;
}

std::vector<AxisSet> Plan::axis_sets() const {
  std::vector<AxisSet> sets;
  const auto add = [&](AxisSet axes) {
    if (axes != 0 && std::find(sets.begin(), sets.end(), axes) == sets.end()) sets.push_back(axes);
  };
  const auto add_steps = [&](const LayerPlan::Steps& steps) {
    for (const auto& step : steps)
      if (step.verb != Verb::none && step.verb != Verb::exchange) add(step.axes);
  };
  for (const auto& layer : layers) {
    for (const auto& steps : layer.arrive) add_steps(steps);
    for (const auto& collective : layer.at.collectives) add(collective.axes);
    add_steps(layer.finish);
    add_steps(layer.finish_back);
    for (const auto& steps : layer.leave) add_steps(steps);
    for (const auto& dw : layer.at.dw) add(dw.partial());
  }
  return sets;
}

std::uint64_t Plan::hash() const {
  std::string text = fmt::format("{} on {} batch {} {} {} {}\n", model, grid.print(), workload.batch,
                                 name(workload.dtype), workload.training, workload.optimizer.print());
  for (const auto& layer : layers) {
    text += fmt::format("{} {} {} {} {}", layer.name, layer.op->kind(), layer.op->describe(), layer.shape.print(),
                        layer.y.print());
    for (const int input : layer.inputs) text += fmt::format(" {}", input);
    for (const auto& x : layer.at.x) text += fmt::format(" {}", x.print());
    for (const auto& w : layer.at.w) text += fmt::format(" {}", w.print());
    for (const auto& dx : layer.at.dx) text += fmt::format(" {}", dx.print());
    for (const auto& dw : layer.at.dw) text += fmt::format(" {}", dw.print());
    text += "\n";
  }
  return partita::hash(text + schedule.print());
}

}  // namespace partita
