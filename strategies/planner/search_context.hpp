#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "src/system/clock.hpp"
#include "strategies/cost/plan_pricer.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/plan/bind.hpp"

#include <limits>
#include <memory>
#include <optional>

namespace partita {

/// What every search for a strategy is given.
/// @pre All of it outlives the search.
struct SearchContext {
  const Model& model;
  const Workload& workload;
  const Machine& machine;
  const KernelTimes& times;
  double until = std::numeric_limits<double>::infinity();  ///< the time of now() at which the search should end
  // shared by all parts of the search
  std::shared_ptr<PlanPricer> pricer = std::make_shared<PlanPricer>(machine, times);
  std::shared_ptr<BindCache> bound = std::make_shared<BindCache>();

  /// Binds a strategy with what the search has made before.
  Plan bind(const Strategy& strategy) const { return partita::bind(model, strategy, workload, *bound); }

  /// The same; nothing if the strategy cannot run: two copies of a table forbid some partitions and optimizer states.
  std::optional<Plan> bind_if_it_can(const Strategy& strategy) const {
    try {
      return bind(strategy);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  /// Returns what a plan costs, without Cost::traffic and Cost::sent, which no choice depends on.
  Cost price(const Plan& plan) const {
    Cost cost = pricer->simulated(plan);
    const FullestRank fullest = fullest_rank(plan);
    cost.memory = fullest.memory;
    cost.memory_rank = fullest.rank;
    return cost;
  }

  bool time_is_up() const { return until < std::numeric_limits<double>::infinity() && now() >= until; }
};

}  // namespace partita
