#include "partita/strategies/planner/planner.hpp"
#include "partita/base/error.hpp"

#include "strategies/planner/grid_search.hpp"

namespace partita {

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
  return GridSearch(context, options).run();
}

}  // namespace partita
