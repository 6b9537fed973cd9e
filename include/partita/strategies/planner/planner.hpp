#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/cost/estimate.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace partita {

/// A pattern of layouts that was not looked at, since some layer cannot run in it.
struct LeftOut {
  std::string grid, pattern;
  std::string why;  ///< names the layer
};

/// What the planner may do, and how much it looks at.
struct PlannerOptions {
  int ranks = 1;
  Index memory_limit = 0;  ///< bytes a rank; 0: the machine's
  int best = 3;            ///< strategies to return
  /// Candidates to bind and price whole, the most promising by what is known of each. With more the estimates by which they are sorted
  /// may err more: 48 found a strategy faster by a quarter for one of seven models (alexnet on 12 ranks), the same for the others, in
  /// 1.1 to 4 times as long; 3 missed it for two.
  int examined = 12;
  /// So often as many again while fewer fit than are asked for, or what does not fit lets slower ones in. More rounds only say later that
  /// none fits: what comes then is seldom smaller. More too until a schedule has been found for any.
  int rounds = 8;
  /// Ranks that share the samples of one block at most: spatial and channel axes together. Larger blocks of ranks pay where samples are
  /// few and large; each divisor more is priced with its patterns.
  int most_split = 64;
  /// Microbatches a stage at most: with 64 the bubble of 1f1b is below 1/64 of a step. More are slower, but hold less.
  int most_microbatches = 64;
  /// Schedules of several stages. chimera, which takes longer to price, is tried where it would be among the best if all stages
  /// worked as long and none waited.
  std::vector<ScheduleKind> kinds{ScheduleKind::one_f_one_b, ScheduleKind::zb_h1, ScheduleKind::chimera};
  std::function<void(int done, int all)> progress{};       ///< after each candidate, of so many up to this round's end
  std::function<void(const LeftOut& pattern)> left_out{};  ///< after the search; by the grid that met it first
};

/// A strategy that was found, with its price.
struct Planned {
  Strategy strategy;
  Cost cost;
};

/// Nothing fits that was tried.
class NothingFits : public Error {
 public:
  NothingFits(const std::string& what, Planned least) : Error(what), smallest(std::move(least)) {}
  Planned smallest;  ///< of those that were tried
};

/// The cheapest strategies for so many ranks, the best first, of those that fit the memory limit:
///
///     stages x microbatches x grids      divisors of the ranks; 1, 2, 4, ... microbatches a stage; samples (data), the first two
///                                        dimensions of space (y, x; x <= y) and channels (c) share a stage
///     layouts                            every layer chooses one of the grid's patterns: eliminate_choices (Jia et al. 2018)
///     boundaries of stages               as `balanced` places them, with less effort
///     schedule                           the given kinds
///     distributed update, recomputation, more microbatches
///                                        where memory asks for it, by themselves and together
///
/// Best first: what could be least, by what computing alone takes, is priced by its layers, redistributions and sums, what then
/// could be least is bound and priced whole. Throws Error for numbers below 1 and if no grid of so many ranks can run the model,
/// NothingFits if nothing fits that was tried, saying what is missing least and in which class.
std::vector<Planned> plan_strategies(const Model& model, const Workload& workload, const Machine& machine,
                                     const KernelTimes& times, const PlannerOptions& options);

}  // namespace partita
