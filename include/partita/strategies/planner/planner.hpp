#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/planner/choose_products.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// A layout pattern in which some layer cannot run.
struct LeftOut {
  std::string grid, pattern;
  std::string why;  ///< the reason; it names the layer
  /// True if the layers that cannot run in it have another layout while all others follow it. If there is no such
  /// layout, the planner did not consider the pattern.
  bool still_tried = false;
};

/// What a search left out because its time was up.
struct Unfinished {
  Index candidates = 0;      ///< grids and layouts that were not examined
  double least_seconds = 0;  ///< what a step of them takes at least, as far as the search has estimated them
  int not_improved = 0;      ///< strategies whose groups of layers may have faster layouts
};

/// A strategy that the planner found, with its cost estimate.
struct Planned {
  Strategy strategy;
  Cost cost;
  std::vector<ProductChoice> choices{};  ///< the products and layouts of weights that were chosen for the machine
};

/// What the planner may do, and how much it searches.
struct PlannerOptions {
  int ranks = 1;
  Index memory_limit = 0;  ///< bytes per rank; 0: the machine's memory
  /// number of strategies to return: the fastest of each kind (samples, space, channels or stages divided), and more of
  /// a kind if there are fewer kinds that take at most 1.25 times as long as the fastest
  int best = 3;
  /// Number of candidates per round that are bound and estimated exactly, the most promising first. A larger number
  /// tolerates larger errors in the estimates by which candidates are sorted. Measured on four models and 12 ranks: 48
  /// found a strategy faster by 0.4 % for one model (googlenet) and the same strategy for the others, in 1.2 to 1.4
  /// times the time; 3 missed the best strategy of two models, by 15 and 17 %.
  int examined = 12;
  /// Maximum number of rounds. A further round of `examined` candidates runs while fewer than `best` strategies fit the
  /// memory limit, while slower candidates may still be among the best because faster ones did not fit, or while
  /// strategies of other kinds may be found. More rounds only delay the report that nothing fits, since later
  /// candidates seldom need less memory. The maximum does not apply until some candidate has a schedule.
  int rounds = 8;
  /// Maximum number of ranks that share the same samples: the product of the spatial and channel axes. Larger values
  /// pay off if samples are few and large. Each further divisor adds patterns to estimate.
  int most_split = 64;
  /// Maximum number of microbatches per stage. With 64 the bubble of 1f1b is below 1/64 of a step. More microbatches
  /// are slower but need less memory.
  int most_microbatches = 64;
  int least_stages = 1;  ///< minimum number of stages
  /// True: strategies compute what one rank computes. With batch normalization they have one microbatch then, because
  /// its statistics are those of a microbatch.
  bool keep_batch_norm = false;
  /// Seconds after which the search ends with the best that it has found; 0: no limit. It ends later if it has found
  /// nothing yet. What is found in limited time depends on the machine that plans.
  double time_limit = 0;
  /// Schedules to try with several stages. chimera takes longer to estimate. It is tried only if it would be among the
  /// best with stages of equal length.
  std::vector<ScheduleKind> kinds{ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::chimera};
  /// called after each grid, candidate and strategy: what is counted, e.g. "candidates examined", how many so far, and
  /// how many there will be (of candidates: at the end of this round)
  std::function<void(std::string_view what, int done, int all)> progress{};
  /// called after the search, once per pattern, with the first grid where a layer could not run in it
  std::function<void(const LeftOut& pattern)> left_out{};
  /// called after the search, if its time was up
  std::function<void(const Unfinished& what)> unfinished{};
  /// called after the search with the fastest pipeline whose stages shard samples alone, if one runs and fits
  std::function<void(const Planned& fastest)> plain_pipeline{};
};

/// Thrown if no strategy that was tried fits the memory limit.
class NothingFits : public Error {
 public:
  NothingFits(const std::string& what, Planned least) : Error(what), smallest(std::move(least)) {}
  Planned smallest;  ///< the strategy that needs least memory among those tried
};

/// Returns the fastest strategies for `options.ranks` ranks that fit the memory limit, the fastest first. It searches
/// over:
///
///     stages x microbatches x grids   divisors of the ranks; 1, 2, 4, ... microbatches, in all and per stage; the
///                                     grid of a stage shards samples (data), the first two spatial dimensions (y, x;
///                                     x <= y) and channels (c)
///     layouts                         each layer has one of the grid's patterns, of all choices the best by
///                                     elimination (Jia et al. 2018)
///     stage partition                 as place_stages(), with less effort
///     schedule                        the kinds in `options.kinds`
///     sharded optimizer, recomputation, more microbatches
///                                     if the memory limit requires it, alone and together
///     layouts of groups of layers, and of layers that are alike
///                                     others are priced one by one, and what is faster is taken
///     channels in all layers          of models without convolutions, on the stages of the fastest, with the products
///                                     that are chosen for the machine
///     orders of the grid's axes       of the strategies that are returned, if there are three axes or fewer
///
/// The search is best-first. Candidates are ordered by a lower bound that counts only computation. The most promising
/// ones get a cost estimate from their layers, redistributions and gradient sums. The best of these are bound and
/// estimated exactly. The strategies have few rules, with patterns of names.
///
/// Throws Error for numbers below 1, for a time limit below 0, and if no grid of that many ranks can run the model.
/// Throws NothingFits if no strategy that was tried fits the memory limit; it reports the smallest excess and the
/// memory by class.
std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options);

}  // namespace partita
