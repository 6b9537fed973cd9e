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

double share_of_larger_microbatches(const Plan& plan) {
  if (plan.remainder_layers.empty()) return 1;
  int count = 0;
  for (int j = 0; j < plan.microbatches; ++j) count += plan.samples(j).extent() == plan.samples(0).extent() ? 1 : 0;
  return static_cast<double>(count) / plan.microbatches;
}

}  // namespace

class CostFormula::Parts {
 public:
  Parts(const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known)
      : plan_(plan),
        known_(known),
        units_(units(machine)),
        graph_(graph_of(plan)),
        actions_(microbatch_actions(plan.workload.training, splits_backward(plan.schedule))),
        larger_share_(share_of_larger_microbatches(plan)) {
    CostTermBuilder builder(plan, machine, times, splits_backward(plan.schedule));
    groups_.resize(plan.stage_of_group.size());
    TermsCache cache;
    for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
      const LayerPlan& layer = plan.layers[static_cast<std::size_t>(i)];
      groups_[static_cast<std::size_t>(layer.group)].layers.push_back({i, distinct_number(builder, cache, i), -1});
      add_transfers(builder, layer, i);
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      groups_[group].counts = count_distinct(groups_[group].layers);
      order_layers(builder, groups_[group]);
      if (plan.workload.training) add_update(builder, static_cast<int>(group));
    }
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
    cost.layers.resize(plan_.layers.size());
    for (const Group& group : groups_)
      for (const auto& [layer, distinct, sums] : group.layers) {
        LayerCost& layer_cost = cost.layers[static_cast<std::size_t>(layer)];
        layer_cost = priced.layers[static_cast<std::size_t>(distinct)];
        if (sums >= 0) layer_cost.grad_reduce = priced.sums[static_cast<std::size_t>(sums)].seconds;
      }
    cost.transfers = priced.transfers;
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
  };
  struct Transfer {
    int from = 0, to = 0;   // groups
    bool gradient = false;  // the output's gradient comes back
    std::vector<Movement> ranks;
  };
  /// A simulated schedule.
  struct Pipeline {
    double makespan = 0;
    std::vector<double> busy;  // by stage
    double bubble_rate = 0;
  };
  struct Priced {
    std::vector<LayerCost> layers;  // by index in distinct_
    std::vector<GradReduceCost> sums;
    std::vector<double> transfers;  // seconds by edge
    std::vector<double> busy;       // by group: seconds that the transfers of a microbatch keep its ranks busy
    std::vector<double> hidden;     // by group: seconds of gradient sums that computation hides
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

  /// Adds the transfers of a layer's output to other stages, and notes whether its gradient comes back.
  void add_transfers(CostTermBuilder& builder, const LayerPlan& layer, int index) {
    using enum StepOp::Kind;
    for (const auto& boundary : layer.sends_to_stages)
      each_transfer_op(layer, index, send_output, boundary.group, [&](const StepOp& op) {
        Transfer transfer{layer.group, boundary.group, false, builder.transfer(op)};
        const auto comes_back = [&](const StepOp&) { transfer.gradient = true; };
        if (plan_.workload.training) each_transfer_op(layer, index, send_gradient, boundary.group, comes_back);
        transfers_.push_back(std::move(transfer));
      });
  }

  /// Brings the layers of a group, which are in model order, into the order of the last action of a microbatch, and
  /// adds the sums of gradients that start there.
  void order_layers(CostTermBuilder& builder, Group& group) {
    const auto layers = std::exchange(group.layers, {});
    each_layer_of(actions_.back(), 0, static_cast<int>(layers.size()), [&](int i) {
      Layer layer = layers[static_cast<std::size_t>(i)];
      const auto sum = [&](const StepOp& op) {
        if (op.kind == StepOp::Kind::sum_gradients) layer.sums = add_sums(builder, layer.index);
      };
      const LayerPlan& bound = plan_.layers[static_cast<std::size_t>(layer.index)];
      if (plan_.workload.training) each_end_op(bound, layer.index, actions_.back(), true, sum);
      group.layers.push_back(layer);
    });
  }

  /// Returns the index in sums_ of the gradient sums that a layer completes, or -1.
  int add_sums(CostTermBuilder& builder, int layer) {
    auto sums = builder.sums(layer);
    if (sums.empty()) return -1;
    sums_.push_back(std::move(sums));
    return static_cast<int>(sums_.size()) - 1;
  }

  void add_update(const CostTermBuilder& builder, int group) {
    each_group_op(plan_, Action::Kind::step, false, [&](const StepOp& op) {
      if (op.kind == StepOp::Kind::update) groups_[static_cast<std::size_t>(group)].update = builder.update(group);
    });
  }

  static std::vector<std::pair<int, int>> count_distinct(const std::vector<Layer>& layers) {
    std::map<int, int> counts;
    for (const Layer& layer : layers) ++counts[layer.distinct];
    return {counts.begin(), counts.end()};
  }

  /// Returns the layer's index in distinct_. Most layers share their bindings, and thus their terms, with others.
  int distinct_number(CostTermBuilder& builder, TermsCache& cache, int index) {
    const auto i = static_cast<std::size_t>(index);
    const LayerPlan& layer = plan_.layers[i];
    const LayerBinding* smaller = larger_share_ == 1 ? nullptr : plan_.remainder_layers[i].binding.get();
    const auto [begin, end] = cache.bindings.equal_range(layer.binding.get());
    const auto bound = std::find_if(begin, end, [&](const auto& each) {
      return each.second.smaller == smaller && each.second.recompute == layer.recompute;
    });
    if (bound != end && layer.sends_to_stages.empty()) return bound->second.number;
    const std::pair sizes{terms_number(builder, cache, index, false),
                          smaller == nullptr ? -1 : terms_number(builder, cache, index, true)};
    const auto [found, inserted] = cache.sizes.try_emplace(sizes, static_cast<int>(distinct_.size()));
    if (inserted) distinct_.push_back({sizes.first, sizes.second});
    if (layer.sends_to_stages.empty())
      cache.bindings.insert({layer.binding.get(), {smaller, layer.recompute, found->second}});
    return found->second;
  }

  /// Returns the index of the layer's terms in layer_terms_. Layers of equal cost share one.
  int terms_number(CostTermBuilder& builder, TermsCache& cache, int index, bool of_remainder) {
    const LayerPlan& layer = (of_remainder ? plan_.remainder_layers : plan_.layers)[static_cast<std::size_t>(index)];
    auto& candidates = cache.layers[cost_hash(layer)];
    for (const auto& [other, stage, number] : candidates)
      if (stage == plan_.stage_of(index) && equivalent_cost(layer, *other)) return number;
    const bool known = known_ != nullptr;
    known ? layer_costs_.push_back(known_->of(plan_, index, of_remainder))
          : layer_terms_.push_back(builder.layer(index, of_remainder));
    const auto number = static_cast<int>(known ? layer_costs_.size() : layer_terms_.size()) - 1;
    candidates.push_back({&layer, plan_.stage_of(index), number});
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
    for (const auto& [larger, smaller] : distinct_) {
      priced.layers.push_back(cost_of(larger, rates));
      if (smaller < 0) continue;
      LayerCost& mean = priced.layers.back();  // weighted by the number of microbatches of each size
      const LayerCost smaller_cost = cost_of(smaller, rates);
      for (PassCost LayerCost::*pass : passes_of_layer) {
        mean.*pass = mean.*pass * larger_share_;
        mean.*pass += smaller_cost.*pass * (1 - larger_share_);
      }
      mean.measured = mean.measured && smaller_cost.measured;
    }
    priced.sums.reserve(sums_.size());
    for (const auto& ranks : sums_) priced.sums.push_back(rates.grad_reduce(ranks));
    for (const Group& group : groups_) {
      const auto [times, hidden] = times_of(group, rates, priced);
      priced.times.groups.push_back(times);
      priced.hidden.push_back(hidden);
    }
    time_transfers(rates, priced);
    return priced;
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
  void time_transfers(const MachineRates& rates, Priced& priced) const {
    const auto edges = static_cast<std::size_t>(graph_.edges());
    priced.transfers.assign(edges, 0);
    priced.times.edges.assign(edges, 0);
    priced.busy.assign(groups_.size(), 0);
    for (const auto& [from, to, gradient, ranks] : transfers_) {
      const StageTransfer transfer = rates.transfer(ranks);
      const auto edge = static_cast<std::size_t>(graph_.edge(from, to));
      priced.transfers[edge] += transfer.seconds;
      priced.times.edges[edge] += transfer.seconds * transfer.overlap;
      const double busy = transfer.seconds * (1 - transfer.overlap) / 2;
      for (const int each : {from, to}) {
        const auto group = static_cast<std::size_t>(each);
        priced.times.groups[group].forward += busy;
        if (gradient) priced.times.groups[group].backward_data += busy;
        priced.busy[group] += gradient ? 2 * busy : busy;
      }
    }
  }

  /// Simulates the schedule as if nothing had to wait for transfers between stages. What it waits for then is the
  /// bubble; what transfers add is no bubble, and more microbatches do not help against it.
  Pipeline without_transfers(const Priced& priced, const Simulation& simulation) const {
    const auto& edges = priced.times.edges;
    if (std::all_of(edges.begin(), edges.end(), [](double seconds) { return seconds == 0; }))
      return {simulation.makespan, simulation.busy, simulation.bubble_rate()};
    ScheduleTimes times = priced.times;
    times.edges.assign(edges.size(), 0);
    const Simulation without = simulate(plan_.schedule, graph_, times);
    return {without.makespan, without.busy, without.bubble_rate()};
  }

  /// Returns the cost of a step, with the parts of the stage that is busy longest.
  StepCost parts(const Priced& priced, double makespan, const Pipeline& pipeline) const {
    const auto& busy = pipeline.busy;
    StepCost cost{makespan, {}, static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin())};
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const int replica = plan_.replica_on(static_cast<int>(i), cost.stage);
      if (replica < 0) continue;
      const double microbatches = plan_.microbatches_of(replica);
      for (const auto& [distinct, layers] : groups_[i].counts)
        for (const PassCost LayerCost::*pass : passes_of_layer)
          cost.parts.passes += priced.layers[static_cast<std::size_t>(distinct)].*pass * (layers * microbatches);
      cost.parts.transfers += priced.busy[i] * microbatches;
      cost.parts.grad_reduce += priced.times.groups[i].reduce;
      cost.parts.hidden += priced.hidden[i];
      cost.parts.update += priced.times.groups[i].step;
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
  double larger_share_;                    // the share of microbatches of the larger size
  CostTerms terms_;
  std::vector<std::vector<RankTerms>> layer_terms_;  // one per distinct layer and microbatch size
  std::vector<LayerCost> layer_costs_;               // instead of layer_terms_, if they are known
  std::vector<Sizes> distinct_;
  std::vector<std::vector<GradReduceTerms>> sums_;
  std::vector<Group> groups_;
  std::vector<Transfer> transfers_;
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
