#include "partita/strategies/cost_model.hpp"

#include "partita/base/error.hpp"
#include "price.hpp"

#include <algorithm>

namespace partita {

PassCost& PassCost::operator+=(const PassCost& other) {
  compute += other.compute;
  halo += other.halo;
  redistribution += other.redistribution;
  product += other.product;
  collective += other.collective;
  hidden += other.hidden;
  return *this;
}

PassCost PassCost::operator*(double factor) const {
  return {compute * factor, halo * factor,       redistribution * factor,
          product * factor, collective * factor, hidden * factor};
}

namespace {

PassCost sum(const LayerCost& layer) {
  PassCost all = layer.forward;
  all += layer.backward_data;
  all += layer.backward_filter;
  return all;
}

/// Prices one plan.
class Estimator {
 public:
  Estimator(const Plan& plan, const Machine& machine, const KernelTimes& times)
      : plan_(plan),
        price_(plan, machine, times, splits_backward(plan.schedule)),
        graph_(graph_of(plan)),
        larger_(plan.smaller.empty() ? 1 : share_of_larger(plan)) {}

  Cost run() && {
    for (int layer = 0; layer < static_cast<int>(plan_.layers.size()); ++layer) cost_.layers.push_back(mean(layer));
    times_.groups.resize(plan_.places.size(), {0, 0, 0, 0, 0});
    for (int group = 0; group < static_cast<int>(plan_.places.size()); ++group) add_group(group);
    add_transfers();
    cost_.simulation = simulate(plan_.schedule, graph_, times_);
    cost_.seconds = cost_.simulation.makespan;
    cost_.samples_per_second = static_cast<double>(plan_.workload.batch) / cost_.seconds;
    add_parts();
    for (std::size_t stage = 0; stage < plan_.grids.size(); ++stage) add_ranks(plan_.grids[stage]);
    return std::move(cost_);
  }

 private:
  static double share_of_larger(const Plan& plan) {
    int count = 0;
    for (int j = 0; j < plan.microbatches; ++j) count += plan.samples(j).extent() == plan.samples(0).extent() ? 1 : 0;
    return static_cast<double>(count) / plan.microbatches;
  }

  /// Of microbatches of both sizes, as many as there are.
  LayerCost mean(int layer) const {
    LayerCost cost = price_.layer(layer, false);
    if (larger_ == 1) return cost;
    const LayerCost less = price_.layer(layer, true);
    for (PassCost LayerCost::*pass : {&LayerCost::forward, &LayerCost::backward_data, &LayerCost::backward_filter}) {
      cost.*pass = cost.*pass * larger_;
      cost.*pass += less.*pass * (1 - larger_);
    }
    cost.measured = cost.measured && less.measured;
    return cost;
  }

  /// Sums start when the last microbatch's backward has completed a bucket, and travel one after the other; what does not travel
  /// by itself holds the backward up.
  void add_group(int group) {
    GroupTimes& times = times_.groups[static_cast<std::size_t>(group)];
    double now = 0, link = 0;
    for (std::size_t i = plan_.layers.size(); i-- > 0;) {
      if (plan_.layers[i].group != group) continue;
      LayerCost& layer = cost_.layers[i];
      times.forward += layer.forward.total();
      times.backward_data += layer.backward_data.total();
      times.backward_filter += layer.backward_filter.total();
      if (!plan_.workload.training) continue;
      now += layer.backward_data.total() + layer.backward_filter.total();
      const Sums sums = price_.sums(static_cast<int>(i));
      layer.sums = sums.seconds;
      const double waits = sums.seconds * (1 - sums.overlap);
      now += waits;
      times.reduce += waits;
      link = std::max(link, now) + sums.seconds * sums.overlap;
      times.reduce += sums.replicas;
      times.step += sums.after;
    }
    times.reduce += std::max(0.0, link - now);
    if (plan_.workload.training) times.step += price_.update(group);
  }

  /// What goes on by itself holds up neither stage; the rest is copied in by the one and out by the other.
  void add_transfers() {
    const auto edges = static_cast<std::size_t>(graph_.edges());
    cost_.transfers.assign(edges, 0);
    times_.edges.assign(edges, 0);
    for (std::size_t i = 0; i < plan_.layers.size(); ++i)
      for (const auto& boundary : plan_.layers[i].departs) {
        const StageTransfer transfer = price_.transfer(boundary);
        const int from = plan_.layers[i].group;
        const auto edge = static_cast<std::size_t>(graph_.edge(from, boundary.group));
        cost_.transfers[edge] += transfer.seconds;
        times_.edges[edge] += transfer.seconds * transfer.overlap;
        for (const int group : {from, boundary.group}) {
          const double busy = transfer.seconds * (1 - transfer.overlap) / 2;
          GroupTimes& times = times_.groups[static_cast<std::size_t>(group)];
          times.forward += busy;
          if (plan_.workload.training && plan_.layers[i].sends_gradient()) times.backward_data += busy;
        }
      }
  }

  void add_parts() {
    const auto& busy = cost_.simulation.busy;
    cost_.stage = static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin());
    CostParts& parts = cost_.parts;
    double all = 0;  // what its passes take, transfers included
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      const int replica = plan_.replica_on(plan_.layers[i].group, cost_.stage);
      if (replica >= 0) parts.passes += sum(cost_.layers[i]) * plan_.microbatches_of(replica);
    }
    for (std::size_t group = 0; group < plan_.places.size(); ++group) {
      if (plan_.replica_on(static_cast<int>(group), cost_.stage) < 0) continue;
      const GroupTimes& times = times_.groups[group];
      all += (times.forward + times.backward_data + times.backward_filter) *
             plan_.microbatches_of(plan_.replica_on(static_cast<int>(group), cost_.stage));
      parts.sums += times_.groups[group].reduce;
      parts.update += times_.groups[group].step;
    }
    parts.transfers = std::max(0.0, all - parts.passes.total());
    parts.bubble = cost_.seconds - busy[static_cast<std::size_t>(cost_.stage)];
  }

  void add_ranks(const Grid& grid) {
    for (const int rank : representatives(grid)) {
      const MemoryPeak memory = plan_.peak(grid.first_rank() + rank);
      if (memory.total > cost_.memory.total) cost_.memory = memory;
      const Traffic traffic = plan_.traffic(grid.first_rank() + rank);
      if (traffic.bytes > cost_.traffic.bytes) cost_.traffic = traffic;
    }
  }

  const Plan& plan_;
  Price price_;
  GroupGraph graph_;
  double larger_;  // the share of microbatches of the larger size
  ScheduleTimes times_;
  Cost cost_;
};

}  // namespace

Cost estimate(const Plan& plan, const Machine& machine, const KernelTimes& times) {
  const double most = machine.levels.back().ranks.value;
  if (most > 0 && plan.ranks() > most)
    fail(
        "the strategy has {} ranks, but the machine '{}' holds {}: its last level '{}' says so; add one for what lies "
        "beyond",
        plan.ranks(), machine.name, most, machine.levels.back().name);
  return Estimator(plan, machine, times).run();
}

}  // namespace partita
