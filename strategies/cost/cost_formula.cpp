#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/base/error.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/known_layer_costs.hpp"
#include "strategies/cost/sums_under_way.hpp"
#include "strategies/cost/symmetry.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/schedule/single_stage.hpp"

#include <algorithm>
#include <map>
#include <memory_resource>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace partita {

namespace {

constexpr std::array passes_of_layer{&LayerCost::forward, &LayerCost::backward_data, &LayerCost::backward_filter};

/// Returns how many ranks a unit of each level holds.
std::vector<int> units(const Machine& machine) {
  std::vector<int> ranks;
  for (const Level& level : machine.levels) ranks.push_back(static_cast<int>(level.ranks.value));
  return ranks;
}

std::string print_units(const std::vector<int>& units) {
  std::string text;
  for (const int ranks : units)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks == 0 ? "any number of" : std::to_string(ranks));
  return text + " ranks";
}

/// The share of a replica's microbatches that are of the larger size.
double share_of_larger_microbatches(const Plan& plan, int replica) {
  const int all = plan.microbatches_of(replica);
  if (plan.remainder_layers.empty() || all == 0) return 1;
  int count = 0;
  for (int j = 0; j < plan.microbatches; ++j)
    if (plan.replica_of(j) == replica && plan.samples(j).extent() == plan.samples(0).extent()) ++count;
  return static_cast<double>(count) / all;
}

}  // namespace

class CostFormula::Parts {
 public:
  Parts(const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known)
      : plan_(plan),
        known_(known),
        units_(units(machine)),
        graph_(graph_of(plan)),
        actions_(microbatch_actions(plan.workload.training, splits_backward(plan.schedule))) {
    CostTermBuilder builder(plan, machine, times, splits_backward(plan.schedule));
    std::vector<int> sums;  // by layer: both replicas wait for each other, so that these are the same for both
    for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) sums.push_back(add_sums(builder, i));
    for (int replica = 0; replica < plan.replicas(); ++replica)
      replicas_.push_back(add_replica(builder, replica, sums));
    terms_ = std::move(builder).take();
  }

  StepCost step(const Machine& machine) const {
    const Priced priced = price(machine);
    if (plan_.schedule.stages.size() > 1) {
      const Simulation simulation = simulate(plan_.schedule, graph_, priced.times);
      return parts(priced, simulation.makespan, without_transfers(priced, simulation));
    }
    const auto [makespan, busy] = run_single_stage(plan_.schedule.stages[0], priced.times);
    return parts(priced, makespan, {makespan, {busy}});
  }

  Cost cost(const Machine& machine) const {
    const Priced priced = price(machine);
    Cost cost;
    cost.simulation = simulate(plan_.schedule, graph_, priced.times);
    const Pipeline pipeline = without_transfers(priced, cost.simulation);
    static_cast<StepCost&>(cost) = parts(priced, cost.simulation.makespan, pipeline);
    cost.bubble_rate = pipeline.bubble_rate;
    cost.samples_per_second = static_cast<double>(plan_.workload.batch) / cost.seconds;
    cost.layers = layers_of(replicas_.front(), priced);
    if (replicas_.size() > 1) cost.second_layers = layers_of(replicas_.back(), priced);
    cost.transfers = priced.replicas.front().transfers;
    std::call_once(worst_ranks_once_, [&] { worst_ranks_ = worst_ranks(plan_); });
    cost.memory = worst_ranks_.memory;
    cost.memory_rank = worst_ranks_.memory_rank;
    cost.traffic = worst_ranks_.traffic;
    cost.sent = worst_ranks_.sent;
    return cost;
  }

 private:
  /// One layer of a group. `distinct` is an index into distinct_. `sums` is an index into sums_, or -1 if the layer
  /// completes no gradient sums.
  struct Layer {
    int index = 0, distinct = 0, sums = -1;
  };
  struct Group {
    std::vector<Layer> layers;                // in the order of a microbatch's last action
    std::vector<std::pair<int, int>> counts;  // each index into distinct_, ascending, and how many layers have it
    UpdateTerms update;
  };
  /// Numbers of layer_terms_ or layer_costs_, for a microbatch of the larger and of the smaller size; -1: no such size.
  struct Sizes {
    int larger = 0, smaller = -1;
    double larger_share = 1;  ///< the share of the replica's microbatches that are of the larger size
  };
  struct Transfer {
    int from = 0, to = 0;   // groups
    bool gradient = false;  // the output's gradient comes back
    std::vector<Movement> ranks;
  };
  /// All layers on the stages of one replica.
  struct Replica {
    std::vector<Group> groups;
    std::vector<Transfer> transfers;
  };
  /// A simulated schedule.
  struct Pipeline {
    double makespan = 0;
    std::vector<double> busy;  // by stage
    double bubble_rate = 0;
  };
  struct PricedReplica {
    std::vector<double> transfers;  // seconds by edge
    std::vector<double> busy;       // by group: seconds that the transfers of a microbatch keep its ranks busy
    std::vector<double> hidden;     // by group: seconds of gradient sums that computation hides
  };
  struct Priced {
    std::vector<LayerCost> layers;  // by index in distinct_
    std::vector<GradReduceCost> sums;
    std::vector<PricedReplica> replicas;
    ScheduleTimes times;
  };
  /// A layer and the index of its terms in layer_terms_.
  struct KnownLayer {
    const LayerPlan* layer;
    int stage, number;
  };
  /// The index in distinct_ of layers that share the bindings of both sizes.
  struct KnownBinding {
    const LayerBinding* smaller;
    bool recompute;
    int number;
  };
  /// The terms made so far. It holds many small objects that are freed together, so they share one memory resource.
  struct TermsCache {
    std::pmr::monotonic_buffer_resource memory{1 << 14};  // bytes; enough for about a hundred distinct layers
    std::pmr::unordered_multimap<const LayerBinding*, KnownBinding> bindings{&memory};
    std::pmr::map<std::pair<int, int>, int> sizes{&memory};  // indices of both sizes' terms -> index in distinct_
    std::pmr::unordered_map<std::size_t, std::pmr::vector<KnownLayer>> layers{&memory};  // by cost_hash
  };

  Replica add_replica(CostTermBuilder& builder, int number, const std::vector<int>& sums) {
    Replica replica;
    replica.groups.resize(plan_.stage_of_group.size());
    const double larger_share = share_of_larger_microbatches(plan_, number);
    TermsCache cache;
    const auto& layers = plan_.layers_of(number, false);
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      const LayerPlan& layer = layers[static_cast<std::size_t>(i)];
      const int distinct = distinct_number(builder, cache, i, number, larger_share);
      replica.groups[static_cast<std::size_t>(layer.group)].layers.push_back(
          {i, distinct, sums[static_cast<std::size_t>(i)]});
      add_transfers(builder, layer, i, number, replica.transfers);
    }
    for (std::size_t i = 0; i < replica.groups.size(); ++i) {
      Group& group = replica.groups[i];
      group.counts = count_distinct(group.layers);
      order_layers(group);
      if (plan_.workload.training) group.update = builder.update(static_cast<int>(i));
    }
    return replica;
  }

  /// Adds the transfers of a layer's output to other stages, and notes whether its gradient comes back.
  void add_transfers(CostTermBuilder& builder, const LayerPlan& layer, int index, int replica,
                     std::vector<Transfer>& transfers) {
    using enum StepOp::Kind;
    for (const auto& boundary : layer.sends_to_stages)
      each_transfer_op(layer, index, send_output, boundary.group, [&](const StepOp& op) {
        Transfer transfer{layer.group, boundary.group, false, builder.transfer(op, replica)};
        const auto comes_back = [&](const StepOp&) { transfer.gradient = true; };
        if (plan_.workload.training) each_transfer_op(layer, index, send_gradient, boundary.group, comes_back);
        transfers.push_back(std::move(transfer));
      });
  }

  /// Brings the layers of a group, which are in model order, into the order of the last action of a microbatch.
  void order_layers(Group& group) const {
    const auto layers = std::exchange(group.layers, {});
    each_layer_of(actions_.back(), 0, static_cast<int>(layers.size()),
                  [&](int i) { group.layers.push_back(layers[static_cast<std::size_t>(i)]); });
  }

  /// Returns the index in sums_ of the gradient sums that a layer completes, or -1.
  int add_sums(CostTermBuilder& builder, int layer) {
    bool completes = false;
    const LayerPlan& bound = plan_.layers[static_cast<std::size_t>(layer)];
    if (plan_.workload.training)
      each_end_op(bound, layer, actions_.back(), true,
                  [&](const StepOp& op) { completes |= op.kind == StepOp::Kind::sum_gradients; });
    if (!completes) return -1;
    auto sums = builder.sums(layer);
    if (sums.empty()) return -1;
    sums_.push_back(std::move(sums));
    return static_cast<int>(sums_.size()) - 1;
  }

  static std::vector<std::pair<int, int>> count_distinct(const std::vector<Layer>& layers) {
    std::map<int, int> counts;
    for (const Layer& layer : layers) ++counts[layer.distinct];
    return {counts.begin(), counts.end()};
  }

  /// Returns the layer's index in distinct_. Most layers share their bindings, and thus their terms, with others.
  int distinct_number(CostTermBuilder& builder, TermsCache& cache, int index, int replica, double larger_share) {
    const auto i = static_cast<std::size_t>(index);
    const LayerPlan& layer = plan_.layers_of(replica, false)[i];
    const LayerBinding* smaller = larger_share == 1 ? nullptr : plan_.layers_of(replica, true)[i].binding.get();
    const auto [begin, end] = cache.bindings.equal_range(layer.binding.get());
    const auto bound = std::find_if(begin, end, [&](const auto& each) {
      return each.second.smaller == smaller && each.second.recompute == layer.recompute;
    });
    if (bound != end && layer.sends_to_stages.empty()) return bound->second.number;
    const std::pair sizes{terms_number(builder, cache, index, replica, false),
                          smaller == nullptr ? -1 : terms_number(builder, cache, index, replica, true)};
    const auto [found, inserted] = cache.sizes.try_emplace(sizes, static_cast<int>(distinct_.size()));
    if (inserted) distinct_.push_back({sizes.first, sizes.second, larger_share});
    if (layer.sends_to_stages.empty())
      cache.bindings.insert({layer.binding.get(), {smaller, layer.recompute, found->second}});
    return found->second;
  }

  /// Returns the index of the layer's terms in layer_terms_. Layers of equal cost share one.
  int terms_number(CostTermBuilder& builder, TermsCache& cache, int index, int replica, bool of_remainder) {
    const LayerPlan& layer = plan_.layers_of(replica, of_remainder)[static_cast<std::size_t>(index)];
    const int stage = plan_.stage_of(index, replica);
    auto& candidates = cache.layers[cost_hash(layer)];
    for (const KnownLayer& each : candidates)
      if (each.stage == stage && equivalent_cost(layer, *each.layer)) return each.number;
    const bool known = known_ != nullptr;
    known ? layer_costs_.push_back(known_->of(plan_, index, of_remainder, replica))
          : layer_terms_.push_back(builder.layer(index, of_remainder, replica));
    const auto number = static_cast<int>(known ? layer_costs_.size() : layer_terms_.size()) - 1;
    candidates.push_back({&layer, stage, number});
    return number;
  }

  LayerCost cost_of(int number, const MachineRates& rates) const {
    const auto i = static_cast<std::size_t>(number);
    return known_ != nullptr ? layer_costs_[i] : rates.layer(layer_terms_[i]);
  }

  void check(const Machine& machine) const {
    if (const auto others = units(machine); others != units_)
      fail("the formula is for levels of {}, but the machine '{}' has levels of {}; make a new formula for it",
           print_units(units_), machine.name, print_units(others));
  }

  Priced price(const Machine& machine) const {
    check(machine);
    const MachineRates rates(terms_, machine);
    Priced priced;
    priced.layers.reserve(distinct_.size());
    for (const auto& [larger, smaller, larger_share] : distinct_) {
      priced.layers.push_back(cost_of(larger, rates));
      if (smaller < 0) continue;
      LayerCost& mean = priced.layers.back();  // weighted by the number of microbatches of each size
      const LayerCost smaller_cost = cost_of(smaller, rates);
      for (PassCost LayerCost::*pass : passes_of_layer) {
        mean.*pass = mean.*pass * larger_share;
        mean.*pass += smaller_cost.*pass * (1 - larger_share);
      }
      mean.measured = mean.measured && smaller_cost.measured;
    }
    priced.sums.reserve(sums_.size());
    for (const auto& ranks : sums_) priced.sums.push_back(rates.grad_reduce(ranks));
    price(replicas_.front(), rates, priced, priced.times.groups, priced.times.edges);
    if (replicas_.size() > 1)
      price(replicas_.back(), rates, priced, priced.times.second_groups, priced.times.second_edges);
    return priced;
  }

  /// Adds a replica to `priced`, with the times of its groups and of its transfers.
  void price(const Replica& replica, const MachineRates& rates, Priced& priced, std::vector<GroupTimes>& groups,
             std::vector<double>& edges) const {
    PricedReplica& added = priced.replicas.emplace_back();
    for (const Group& group : replica.groups) {
      const auto [times, hidden] = times_of(group, rates, priced);
      groups.push_back(times);
      added.hidden.push_back(hidden);
    }
    time_transfers(replica, rates, added, groups, edges);
  }

  /// Returns the times of a group, and the seconds of its gradient sums that computation hides. The sums of a bucket
  /// start when the last action of the last microbatch has completed it. They hide behind what that action still
  /// computes, as far as that hides no halo.
  std::pair<GroupTimes, double> times_of(const Group& group, const MachineRates& rates, const Priced& priced) const {
    const bool split = actions_.back() == Action::Kind::backward_filter;
    GroupTimes times{0, 0, 0, 0, 0};
    SumsUnderWay under_way;
    for (const auto& [index, distinct, sums] : group.layers) {
      const LayerCost& layer = priced.layers[static_cast<std::size_t>(distinct)];
      times.forward += layer.forward.total();
      times.backward_data += layer.backward_data.total();
      times.backward_filter += layer.backward_filter.total();
      under_way.compute(layer.backward_filter.room + (split ? 0 : layer.backward_data.room));
      if (sums < 0) continue;
      const GradReduceCost& reduce = priced.sums[static_cast<std::size_t>(sums)];
      under_way.start(reduce.seconds, reduce.overlap);
      times.reduce += reduce.replicas;
      times.step += reduce.after;
    }
    times.reduce += under_way.exposed();
    times.step += rates.update(group.update);
    return {times, under_way.hidden()};
  }

  /// Adds the times of transfers between stages; a gradient takes as long as its output. The part that overlaps with
  /// computation delays neither stage. For half of the rest each stage is busy: one copies out, the other copies in.
  void time_transfers(const Replica& replica, const MachineRates& rates, PricedReplica& priced,
                      std::vector<GroupTimes>& groups, std::vector<double>& edges) const {
    edges.assign(static_cast<std::size_t>(graph_.edges()), 0);
    priced.transfers.assign(edges.size(), 0);
    priced.busy.assign(groups.size(), 0);
    for (const auto& [from, to, gradient, ranks] : replica.transfers) {
      const StageTransfer transfer = rates.transfer(ranks);
      const auto edge = static_cast<std::size_t>(graph_.edge(from, to));
      priced.transfers[edge] += transfer.seconds;
      edges[edge] += transfer.seconds * transfer.overlap;
      const double busy = transfer.seconds * (1 - transfer.overlap) / 2;
      for (const int each : {from, to}) {
        const auto group = static_cast<std::size_t>(each);
        groups[group].forward += busy;
        if (gradient) groups[group].backward_data += busy;
        priced.busy[group] += gradient ? 2 * busy : busy;
      }
    }
  }

  /// Returns what the layers of a replica cost, by the number of the layer.
  std::vector<LayerCost> layers_of(const Replica& replica, const Priced& priced) const {
    std::vector<LayerCost> costs(plan_.layers.size());
    for (const Group& group : replica.groups)
      for (const Layer& layer : group.layers) {
        LayerCost& cost = costs[static_cast<std::size_t>(layer.index)];
        cost = priced.layers[static_cast<std::size_t>(layer.distinct)];
        if (layer.sums >= 0) cost.grad_reduce = priced.sums[static_cast<std::size_t>(layer.sums)].seconds;
      }
    return costs;
  }

  /// Simulates the schedule as if nothing had to wait for transfers between stages. What it waits for then is the
  /// bubble; what transfers add is no bubble, and more microbatches do not help against it.
  Pipeline without_transfers(const Priced& priced, const Simulation& simulation) const {
    const auto all_zero = [](const std::vector<double>& seconds) {
      return std::all_of(seconds.begin(), seconds.end(), [](double each) { return each == 0; });
    };
    if (all_zero(priced.times.edges) && all_zero(priced.times.second_edges))
      return {simulation.makespan, simulation.busy, simulation.bubble_rate()};
    ScheduleTimes times = priced.times;
    times.edges.assign(times.edges.size(), 0);
    times.second_edges.clear();
    const Simulation without = simulate(plan_.schedule, graph_, times);
    return {without.makespan, without.busy, without.bubble_rate()};
  }

  /// Returns the cost of a step, with the parts of the stage that is busy longest.
  StepCost parts(const Priced& priced, double makespan, const Pipeline& pipeline) const {
    const auto& busy = pipeline.busy;
    StepCost cost{makespan, {}, static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin())};
    for (std::size_t i = 0; i < plan_.stage_of_group.size(); ++i) {
      const int number = plan_.replica_on(static_cast<int>(i), cost.stage);
      if (number < 0) continue;
      const auto r = static_cast<std::size_t>(number);
      const double microbatches = plan_.microbatches_of(number);
      const auto& times = number == 0 ? priced.times.groups : priced.times.second_groups;
      for (const auto& [distinct, layers] : replicas_[r].groups[i].counts)
        for (const PassCost LayerCost::*pass : passes_of_layer)
          cost.parts.passes += priced.layers[static_cast<std::size_t>(distinct)].*pass * (layers * microbatches);
      cost.parts.transfers += priced.replicas[r].busy[i] * microbatches;
      cost.parts.grad_reduce += times[i].reduce;
      cost.parts.hidden += priced.replicas[r].hidden[i];
      cost.parts.update += times[i].step;
    }
    cost.parts.hidden += cost.parts.passes.hidden;
    cost.parts.bubble = pipeline.makespan - busy[static_cast<std::size_t>(cost.stage)];
    cost.parts.transfers += makespan - pipeline.makespan;
    return cost;
  }

  const Plan& plan_;
  KnownLayerCosts* known_;  // if not null, what layers cost on the only machine
  std::vector<int> units_;  // ranks per unit, by level
  GroupGraph graph_;
  std::span<const Action::Kind> actions_;  // of a microbatch
  CostTerms terms_;
  std::vector<std::vector<RankTerms>> layer_terms_;  // one per distinct layer and microbatch size
  std::vector<LayerCost> layer_costs_;               // instead of layer_terms_, if they are known
  std::vector<Sizes> distinct_;
  std::vector<std::vector<GradReduceTerms>> sums_;
  std::vector<Replica> replicas_;  // one, or two (Chimera)
  mutable std::once_flag worst_ranks_once_;
  mutable WorstRanks worst_ranks_;
};

CostFormula::CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times)
    : CostFormula(plan, machine, times, nullptr) {}

CostFormula::CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known) {
  const double most = machine.levels.back().ranks.value;
  if (most > 0 && plan.ranks() > most)
    fail(
        "the strategy has {} ranks, but the machine '{}' holds {}: its last level '{}' has that limit; add a level "
        "for more ranks",
        plan.ranks(), machine.name, most, machine.levels.back().name);
  parts_ = std::make_unique<const Parts>(plan, machine, times, known);
}

CostFormula::CostFormula(CostFormula&&) noexcept = default;
CostFormula& CostFormula::operator=(CostFormula&&) noexcept = default;
CostFormula::~CostFormula() = default;

StepCost CostFormula::step(const Machine& machine) const { return parts_->step(machine); }

Cost CostFormula::cost(const Machine& machine) const { return parts_->cost(machine); }

}  // namespace partita
