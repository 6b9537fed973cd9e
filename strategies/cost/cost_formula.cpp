// The price of a plan:
//
//     seconds of a step = the loss for all stages + makespan of the schedule, simulated with, for each group of layers,
//       forward, backward data, backward filter = sum over its layers of computing and of messages that nothing hides;
//           forward, and backward data if a gradient comes back, with half of the transfers that nothing hides
//       reduce = gradient sums that the computing of the last action does not hide + sums over both replicas
//       step   = norms, gathered weights, the update
//
// plan_terms.cpp groups the plan's layers by what they cost; evaluate_terms.cpp gives the seconds of their terms.
#include "partita/strategies/cost/cost_formula.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/known_orders.hpp"
#include "strategies/cost/plan_terms.hpp"
#include "strategies/cost/sums_under_way.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/schedule/single_stage.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace partita {

namespace {

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

}  // namespace

class CostFormula::Parts {
 public:
  Parts(const Plan& plan, const Machine& machine, const KernelTimes& times,
        std::shared_ptr<const OrderedSchedule> schedule, KnownLayerCosts* known, Examined examined)
      : plan_(plan),
        units_(units(machine)),
        schedule_(std::move(schedule)),
        splits_backward_(splits_backward(plan.schedule)),
        terms_(plan, machine, times, known, examined) {}

  StepCost step(const Machine& machine, const Machine& between_stages) const {
    const Priced priced = price(machine, between_stages);
    if (plan_.schedule.stages.size() > 1) {
      const Pipeline pipeline = without_transfers(priced);
      return parts(priced, waits_for_transfers(priced) ? order().makespan(priced.times) : pipeline.makespan, pipeline);
    }
    const auto [makespan, busy] = run_single_stage(plan_.schedule.stages[0], priced.times);
    return parts(priced, makespan, Pipeline(makespan, {busy}));
  }

  Cost simulated(const Machine& machine) const {
    const Priced priced = price(machine, machine);
    Cost cost;
    cost.simulation = order().simulate(priced.times);
    const Pipeline pipeline = waits_for_transfers(priced) ? without_transfers(priced) : Pipeline(cost.simulation);
    static_cast<StepCost&>(cost) = parts(priced, cost.simulation.makespan, pipeline);
    cost.bubble_rate = pipeline.bubble_rate;
    cost.samples_per_second = static_cast<double>(plan_.workload.batch) / cost.seconds;
    cost.layers = layers_of(terms_.replicas.front(), priced);
    if (terms_.replicas.size() > 1) cost.second_layers = layers_of(terms_.replicas.back(), priced);
    cost.transfers = priced.replicas.front().transfers;
    return cost;
  }

  Cost cost(const Machine& machine) const {
    Cost cost = simulated(machine);
    std::call_once(fullest_once_, [&] { fullest_ = fullest_rank(plan_); });
    cost.memory = fullest_.memory;
    cost.memory_rank = fullest_.rank;
    std::call_once(traffic_once_, [&] { traffic_ = most_traffic(plan_); });
    cost.traffic = traffic_.traffic;
    cost.sent = traffic_.sent;
    return cost;
  }

 private:
  /// A simulated schedule.
  struct Pipeline {
    double makespan = 0;
    std::vector<double> busy;  // by stage
    double bubble_rate = 0;

    Pipeline(double seconds, std::vector<double> busy_seconds) : makespan(seconds), busy(std::move(busy_seconds)) {}
    explicit Pipeline(const Simulation& simulation)
        : makespan(simulation.makespan), busy(simulation.busy), bubble_rate(simulation.bubble_rate()) {}
  };
  struct PricedReplica {
    std::vector<double> transfers;  // seconds by edge
    std::vector<double> busy;       // by group: seconds that the transfers of a microbatch keep its ranks busy
    std::vector<double> hidden;     // by group: seconds of gradient sums that computation hides
  };
  struct Priced {
    std::vector<LayerCost> layers;  // by index in PlanTerms::distinct
    std::vector<GradReduceCost> sums;
    std::vector<PricedReplica> replicas;
    ScheduleTimes times;
  };
  /// Returns what a microbatch of one size costs.
  LayerCost layer_cost(int terms, const MachineRates& rates) const {
    const auto i = static_cast<std::size_t>(terms);
    return terms_.known_costs.empty() ? rates.layer(terms_.layers[i]) : terms_.known_costs[i];
  }
  /// Returns what a distinct layer costs: the mean over microbatches of both sizes, weighted by their numbers.
  LayerCost layer_cost(const PlanTerms::Sizes& terms, const MachineRates& rates) const {
    LayerCost mean = layer_cost(terms.larger, rates);
    if (!terms.smaller) return mean;
    const LayerCost smaller = layer_cost(*terms.smaller, rates);
    for (const Pass pass : microbatch_passes) {
      PassCost& of_pass = cost_of(mean, pass);
      of_pass = of_pass * terms.larger_share;
      of_pass += cost_of(smaller, pass) * (1 - terms.larger_share);
    }
    mean.measured = mean.measured && smaller.measured;
    return mean;
  }

  const GroupGraph& graph() const { return schedule_->graph; }
  const SimulationOrder& order() const { return schedule_->order; }

  void check(const Machine& machine) const {
    if (const auto others = units(machine); others != units_)
      fail("the formula is for levels of {}, but the machine '{}' has levels of {}; make a new formula for it",
           print_units(units_), machine.name, print_units(others));
  }

  Priced price(const Machine& machine, const Machine& between_stages) const {
    check(machine);
    check(between_stages);
    const MachineRates rates(terms_.tables, machine), transfer_rates(terms_.tables, between_stages);
    Priced priced;
    priced.layers.reserve(terms_.distinct.size());
    for (const PlanTerms::Sizes& each : terms_.distinct) priced.layers.push_back(layer_cost(each, rates));
    priced.sums.reserve(terms_.sums.size());
    for (const auto& ranks : terms_.sums) priced.sums.push_back(rates.grad_reduce(ranks));
    ScheduleTimes& times = priced.times;
    const auto add = [&](const PlanTerms::Replica& replica, auto& groups, auto& edges) {
      add_groups(replica, rates, priced, groups);
      add_transfers(replica, transfer_rates, priced.replicas.back(), groups, edges);
    };
    add(terms_.replicas.front(), times.groups, times.edges);
    if (terms_.replicas.size() > 1) add(terms_.replicas.back(), times.second_groups, times.second_edges);
    return priced;
  }

  /// Adds a replica to `priced`, with the times of its groups.
  void add_groups(const PlanTerms::Replica& replica, const MachineRates& rates, Priced& priced,
                  std::vector<GroupTimes>& groups) const {
    PricedReplica& added = priced.replicas.emplace_back();
    for (const PlanTerms::Group& group : replica.groups) {
      const auto [times, hidden] = times_of(group, rates, priced);
      groups.push_back(times);
      added.hidden.push_back(hidden);
    }
  }

  /// Returns the times of a group, and the seconds of its gradient sums that computation hides. The sums of a bucket
  /// start when the last action of the last microbatch has completed it. They hide behind what that action still
  /// computes, as far as that hides no halo.
  std::pair<GroupTimes, double> times_of(const PlanTerms::Group& group, const MachineRates& rates,
                                         const Priced& priced) const {
    GroupTimes times{0, 0, 0, 0, 0};
    SumsUnderWay under_way;
    for (const auto& [index, distinct, sums] : group.layers) {
      const LayerCost& layer = priced.layers[distinct];
      times.forward += layer.forward.total();
      times.backward_data += layer.backward_data.total();
      times.backward_filter += layer.backward_filter.total();
      under_way.compute(layer.backward_filter.room + (splits_backward_ ? 0 : layer.backward_data.room));
      if (!sums) continue;
      const GradReduceCost& reduce = priced.sums[*sums];
      under_way.start(reduce.seconds, reduce.overlap);
      times.reduce += reduce.replicas;
      times.step += reduce.after;
    }
    times.reduce += under_way.exposed();
    times.step += rates.update(group.update);
    return {times, under_way.hidden()};
  }

  /// Adds the times of transfers between stages. The part that overlaps with computation delays neither stage. For half
  /// of the rest each stage is busy: one copies out, the other copies in.
  void add_transfers(const PlanTerms::Replica& replica, const MachineRates& rates, PricedReplica& priced,
                     std::vector<GroupTimes>& groups, std::vector<EdgeTimes>& edges) const {
    edges.assign(static_cast<std::size_t>(graph().edges()), {});
    priced.transfers.assign(edges.size(), 0);
    priced.busy.assign(groups.size(), 0);
    for (const PlanTerms::Transfer& each : replica.transfers) {
      const StageTransfer output = rates.transfer(each.output), gradient = rates.transfer(each.gradient);
      const auto edge = static_cast<std::size_t>(graph().edge(each.from, each.to));
      priced.transfers[edge] += output.seconds;
      edges[edge].output.add(overlapping(output));
      if (!each.gradient.empty()) edges[edge].gradient.add(overlapping(gradient));
      for (const int end : {each.from, each.to}) {
        const auto group = static_cast<std::size_t>(end);
        groups[group].forward += output.busy();
        groups[group].backward_data += gradient.busy();
        priced.busy[group] += output.busy() + gradient.busy();
      }
    }
  }
  static TransferTime overlapping(const StageTransfer& transfer) {
    return {transfer.seconds * transfer.overlap, transfer.latency * transfer.overlap, transfer.level};
  }

  /// Returns what the layers of a replica cost, by the number of the layer.
  std::vector<LayerCost> layers_of(const PlanTerms::Replica& replica, const Priced& priced) const {
    std::vector<LayerCost> costs(plan_.layers.size());
    for (const PlanTerms::Group& group : replica.groups)
      for (const PlanTerms::Layer& layer : group.layers) {
        LayerCost& cost = costs[layer.index];
        cost = priced.layers[layer.distinct];
        if (layer.sums) cost.grad_reduce = priced.sums[*layer.sums].seconds;
      }
    return costs;
  }

  /// Simulates the schedule as if nothing had to wait for transfers between stages. What it waits for then is the
  /// bubble; what transfers add is no bubble, and more microbatches do not help against it.
  Pipeline without_transfers(const Priced& priced) const {
    ScheduleTimes times = priced.times;
    times.edges.assign(times.edges.size(), {});
    times.second_edges.clear();
    return Pipeline(order().simulate(times));
  }
  static bool waits_for_transfers(const Priced& priced) {
    const auto takes_time = [](const EdgeTimes& each) { return each.output.seconds > 0 || each.gradient.seconds > 0; };
    const ScheduleTimes& times = priced.times;
    return std::any_of(times.edges.begin(), times.edges.end(), takes_time) ||
           std::any_of(times.second_edges.begin(), times.second_edges.end(), takes_time);
  }

  /// Returns the cost of a step, with the parts of the stage that is busy longest.
  StepCost parts(const Priced& priced, double makespan, const Pipeline& pipeline) const {
    const auto& busy = pipeline.busy;
    double loss = 0;
    for (const GradReduceCost& each : priced.sums) loss += each.loss;
    StepCost cost{makespan + loss, {}, static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin())};
    for (std::size_t i = 0; i < plan_.stage_of_group.size(); ++i) {
      const int number = plan_.replica_on(static_cast<int>(i), cost.stage);
      if (number < 0) continue;
      const auto r = static_cast<std::size_t>(number);
      const double microbatches = plan_.microbatches_of(number);
      const auto& times = number == 0 ? priced.times.groups : priced.times.second_groups;
      for (const auto& [distinct, layers] : terms_.replicas[r].groups[i].counts)
        for (const Pass pass : microbatch_passes)
          cost.parts.passes += cost_of(priced.layers[distinct], pass) * (layers * microbatches);
      cost.parts.transfers += priced.replicas[r].busy[i] * microbatches;
      cost.parts.grad_reduce += times[i].reduce;
      cost.parts.hidden += priced.replicas[r].hidden[i];
      cost.parts.update += times[i].step;
    }
    cost.parts.update += loss;
    cost.parts.hidden += cost.parts.passes.hidden;
    cost.parts.bubble = pipeline.makespan - busy[cost.stage];
    cost.parts.transfers += makespan - pipeline.makespan;
    return cost;
  }

  const Plan& plan_;
  std::vector<int> units_;  // ranks per unit, by level
  std::shared_ptr<const OrderedSchedule> schedule_;
  bool splits_backward_;
  PlanTerms terms_;
  mutable std::once_flag fullest_once_, traffic_once_;
  mutable FullestRank fullest_;
  mutable MostTraffic traffic_;
};

CostFormula::CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times)
    : CostFormula(plan, machine, times, KnownOrders().of(plan), nullptr, Examined::representatives) {}

CostFormula::CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times,
                         std::shared_ptr<const OrderedSchedule> schedule, KnownLayerCosts* known, Examined examined) {
  const double most = machine.levels.back().ranks.value;
  if (most > 0 && plan.ranks() > most)
    fail(
        "the strategy has {} ranks, but the machine '{}' holds {}: its last level '{}' has that limit; add a level "
        "for more ranks",
        plan.ranks(), machine.name, most, machine.levels.back().name);
  parts_ = std::make_unique<const Parts>(plan, machine, times, std::move(schedule), known, examined);
}

CostFormula::CostFormula(CostFormula&&) noexcept = default;
CostFormula& CostFormula::operator=(CostFormula&&) noexcept = default;
CostFormula::~CostFormula() = default;

StepCost CostFormula::step(const Machine& machine, const Machine& between_stages) const {
  return parts_->step(machine, between_stages);
}

Cost CostFormula::cost(const Machine& machine) const { return parts_->cost(machine); }
Cost CostFormula::simulated(const Machine& machine) const { return parts_->simulated(machine); }

}  // namespace partita
