#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/planner/search_context.hpp"
#include "strategies/planner/stage_search.hpp"
#include "strategies/planner/strategy_kind.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace partita {

/// A strategy whose stages are not placed yet, with an estimate of its step time. It may exceed the memory limit.
struct UnplacedStrategy {
  Strategy strategy;
  int data = 1;  ///< ranks of a stage that share the samples of a microbatch
  double seconds = 0;
};

/// Returns the bytes that a rank may hold.
Index memory_limit(const PlannerOptions& options, const Machine& machine);

/// Returns true if two strategies of one kind, whose steps take so many seconds, differ in the names of axes at most.
bool nearly_equal(double seconds, double others);

/// Keeps the fastest strategies that fit the memory limit: the fastest of each kind, and more of a kind only as long as
/// there are fewer kinds than strategies to return. If a candidate would be among them but exceeds the limit,
/// tries variants that hold less.
class MemoryLimitedSearch {
 public:
  /// Effort of a search for stage partitions, in simulated actions (2^22, `affordable`, takes half a second): `quick`
  /// (8 ms) for every candidate, `thorough` (an eighth of a second) for those that may be kept. More effort finds
  /// better partitions for only a few models, and takes proportionally longer.
  static constexpr double quick = 1 << 16, thorough = 1 << 20;

  MemoryLimitedSearch(const SearchContext& context, const PlannerOptions& options);

  /// Returns the strategy with a stage partition that fits the memory limit approximately. If none fits, the limit is
  /// ignored, because a variant of the strategy that holds less may run as fast.
  Strategy placed(const Plan& single_stage, const Strategy& strategy, double effort);

  /// Offers a strategy. Keeps it, or its fastest variant that fits, if that is among the best.
  void offer(const UnplacedStrategy& offered);
  /// Offers a strategy whose stages are placed and that has its price. It takes the place of the one that it was made
  /// from, whose step took `before` seconds.
  void replace(double before, Planned planned);

  /// Returns true if a strategy of this kind and step time would be among the best, provided that it fits.
  bool would_keep(const StrategyKind& kind, double seconds) const;
  /// Returns true if the list has `best` strategies, and one of this kind that takes `seconds` or less.
  bool has_better(const StrategyKind& kind, double seconds) const;
  /// The strategies found so far, the fastest first.
  const std::vector<Planned>& found() const { return found_; }
  /// Strategies that others displaced: at most `best` of them, the fastest first.
  const std::vector<Planned>& displaced() const { return displaced_; }
  /// Returns true if no candidate that takes `seconds` or more is looked for any longer: if the list has `best`
  /// strategies, and either all are of different kinds, or such a candidate is too slow to be of interest.
  /// As long as nothing exceeded the limit, candidates were offered with the fastest first, so a full list is final.
  bool done(double seconds) const;

  /// Throws NothingFits, which reports the offered strategy that comes nearest to the limit.
  [[noreturn]] void fail_unfit() const;

 private:
  struct Variant {
    Strategy unplaced;
    Planned planned;
  };
  std::optional<Variant> fastest_variant(const UnplacedStrategy& offered);
  void consider_shards(const UnplacedStrategy& offered, std::optional<Variant>& best);
  int most_microbatches(const UnplacedStrategy& offered) const;
  std::optional<Variant> within_limit(const Strategy& unplaced, double effort);
  Planned thoroughly(Variant variant);
  /// A strategy with placed stages. It has a price if it fits.
  struct Estimated {
    Strategy strategy;
    Index held = 0;
    std::optional<Cost> cost;
    /// a lower bound of the seconds of a step; if it is too slow to be kept, its memory is not known
    double least_seconds = 0;
    bool too_slow = false;
  };
  const Estimated& estimated(const Strategy& unplaced, double effort);
  Estimated estimate(const Strategy& unplaced, double effort) const;
  bool full() const { return found_.size() == static_cast<std::size_t>(options_.best); }
  std::vector<KindTime> kinds_found() const;
  void keep(Planned planned);
  void displace(Planned planned);

  const SearchContext& context_;
  const PlannerOptions& options_;
  Index limit_;
  bool limited_ = false;  // some strategy exceeded the limit as offered
  int unfit_ = 0;
  std::vector<Planned> found_, displaced_;
  std::vector<StrategyKind> kinds_;    // of found_
  std::optional<Estimated> smallest_;  // the strategy with the least memory among those that did not fit
  std::map<std::pair<std::string, double>, Estimated> known_;  // by strategy and effort
};

}  // namespace partita
