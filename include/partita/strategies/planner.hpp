#pragma once

#include "partita/strategies/cost_model.hpp"

#include <functional>
#include <string>
#include <vector>

namespace partita {

/// What the planner may do, and how much it looks at.
struct PlannerOptions {
  int ranks = 1;
  Index memory_limit = 0;  ///< bytes a rank; 0: the machine's
  int best = 3;            ///< strategies to return
  int examined = 12;       ///< of the most promising ones, bound and priced whole
  int most_split = 64;     ///< ranks that share the samples of one block at most: spatial and channel axes together
  std::vector<std::string> kinds{"1f1b", "zb-h1"};  ///< schedules of several stages
  std::function<void(int done, int all)> progress{};
};

/// A strategy that was found, with its price.
struct Planned {
  Strategy strategy;
  Cost cost;
};

/// The cheapest strategies for so many ranks, the best first, of those that fit the memory limit:
///
///     stages x microbatches x grids      all divisors of the ranks; samples (data), H (y), W (x) and channels (c) share a stage
///     layouts                            every layer chooses one of the grid's patterns: least_cost (Jia et al. 2018)
///     boundaries of stages               balanced
///     schedule, update, recomputation    the given kinds; distributed and recomputing where memory asks for it
///
/// Candidates are ordered by the sum of their layers' and redistributions' prices; the most promising are bound and priced whole.
/// Throws Error if nothing fits, saying what is missing least, in which class, and what would make it fit.
std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options);

}  // namespace partita
