#include "partita/strategies/planner/planner.hpp"
#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/layout_reasons.hpp"
#include "partita/strategies/planner/short_rules.hpp"
#include "strategies/planner/grid_search.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Gives groups of layers the layouts that make the step faster, one after the other, and returns the result with short
/// rules. The search estimates each layer on its own and knows few patterns; this looks at the price of the whole step.
/// The strategy stays of its kind and within the limit in bytes.
Planned improved(Planned planned, const SearchContext& context, Index limit) {
  constexpr int most_rounds = 4;
  constexpr double least_saving = 1e-3;  // of a step
  const auto& [model, workload, machine, times] = context;
  planned.strategy = with_short_rules(model, planned.strategy);
  for (int round = 0; round < most_rounds; ++round) {
    const LayoutReason* best = nullptr;
    const auto reasons = layout_reasons(model, planned.strategy, workload, machine, times);
    for (const LayoutReason& reason : reasons)
      if (!reason.second.empty() && reason.cost.seconds < planned.cost.seconds * (1 - least_saving) &&
          kind_of(reason.with) == kind_of(planned.strategy) &&
          (best == nullptr || reason.cost.seconds < best->cost.seconds))
        best = &reason;
    if (best == nullptr) break;
    Cost cost = estimate(bind(model, best->with, workload), machine, times);
    if (cost.memory.total > limit) break;
    planned = {with_short_rules(model, best->with), std::move(cost)};
  }
  return planned;
}

}  // namespace

std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks)
    fail("the number of ranks is {}; it must be 1 to {}", options.ranks, most_ranks);
  if (options.best < 1) fail("the number of strategies to find is {}; it must be 1 or more", options.best);
  if (options.examined < 1) fail("the number of candidates to examine is {}; it must be 1 or more", options.examined);
  for (const int each : {options.rounds, options.most_split, options.most_microbatches})
    if (each < 1)
      fail("a limit of the planner's rounds, ranks per block or microbatches is {}; it must be 1 or more", each);
  const SearchContext context{model, workload, machine, times};
  std::vector<Planned> found = GridSearch(context, options).run();
  for (Planned& each : found) each = improved(std::move(each), context, memory_limit(options, machine));
  std::stable_sort(found.begin(), found.end(),
                   [](const Planned& a, const Planned& b) { return a.cost.seconds < b.cost.seconds; });
  return found;
}

}  // namespace partita
