#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/planner/stage_search.hpp"

#include <optional>

namespace partita {

/// Keeps the fastest strategies that fit the memory limit. If a candidate would be among them but exceeds the limit,
/// tries variants that hold less.
class MemoryLimitedSearch {
 public:
  /// Effort of a search for stage partitions, in simulated actions (2^22, `affordable`, takes half a second): `quick`
  /// (8 ms) for every candidate, `thorough` (an eighth of a second) for those that may be kept. More effort finds
  /// better partitions for only a few models, and takes proportionally longer.
  static constexpr double quick = 1 << 16, thorough = 1 << 20;

  MemoryLimitedSearch(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times,
                      const PlannerOptions& options);

  /// Returns the strategy with a stage partition that fits the memory limit approximately. If none fits, the limit is
  /// ignored, because a variant of the strategy that holds less may run as fast.
  Strategy placed(const Plan& uncut, const Strategy& strategy, double effort);
  /// Binds a strategy whose stages are placed.
  Plan bind_plan(const Strategy& strategy) { return bind(model_, strategy, workload_, made_); }

  /// Offers a strategy whose stages are not placed yet. Keeps it, or its fastest variant that fits, if that is among
  /// the best. `seconds` estimates its step time.
  void offer(const Strategy& strategy, double seconds);

  /// Returns true if a strategy with this step time would be among the best, provided that it fits.
  bool would_keep(double seconds) const;
  /// The strategies found so far, the fastest first.
  const std::vector<Planned>& found() const { return found_; }
  /// Returns true if the list has `best` strategies and no candidate that takes `seconds` or more can still enter it.
  /// As long as nothing exceeded the limit, candidates were offered with the fastest first, so a full list is final.
  bool done(double seconds) const { return full() && (!limited_ || seconds >= found_.back().cost.seconds); }

  /// Throws NothingFits, which reports the offered strategy that comes nearest to the limit.
  [[noreturn]] void fail_unfit() const;

 private:
  struct Variant {
    Strategy unplaced;
    Planned planned;
  };
  std::optional<Variant> fastest_variant(const Strategy& strategy);
  int most_microbatches(const Strategy& strategy) const;
  std::optional<Variant> fitting(const Strategy& unplaced, double effort);
  Planned thoroughly(Variant variant);
  Planned priced(const Strategy& unplaced, double effort);
  bool fits(const Planned& planned) const { return planned.cost.memory.total <= limit_; }
  bool full() const { return found_.size() == static_cast<std::size_t>(options_.best); }
  void keep(Planned planned);

  const Model& model_;
  const Workload& workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  const PlannerOptions& options_;
  Index limit_;
  ScheduleCache made_;
  bool limited_ = false;  // some strategy exceeded the limit as offered
  int unfit_ = 0;
  std::vector<Planned> found_;
  std::optional<Planned> smallest_;  // the strategy with the least memory among those that did not fit
};

}  // namespace partita
