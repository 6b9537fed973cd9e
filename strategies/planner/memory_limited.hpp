#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/planner/stage_search.hpp"

#include <optional>

namespace partita {

/// The strategies that take least of those that fit a limit. What would be among them but does not fit is tried with what lets it hold
/// less.
class MemoryLimitedSearch {
 public:
  /// What the searches for the places of stages may take, in simulated actions (`affordable`, 2^22, is half a second): of all that are
  /// looked at, 8 ms, and of those that may be kept, an eighth of a second. More of either finds better cuts of few models, and takes as
  /// much longer.
  static constexpr double quick = 1 << 16, thorough = 1 << 20;

  MemoryLimitedSearch(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times,
                      const PlannerOptions& options);

  /// With stages that fit the limit, about; if none do, as without one: something that holds less may run as fast.
  Strategy placed(const Plan& uncut, const Strategy& strategy, double effort);
  /// A strategy whose stages are placed.
  Plan bound(const Strategy& strategy) { return bind(model_, strategy, workload_, made_); }

  /// Keeps a strategy whose stages are not placed yet, or its fastest variant that fits, if it is among the best. `seconds`: about what
  /// it takes itself.
  void offer(const Strategy& strategy, double seconds);

  /// True if what takes so long would be among the best, if it fits.
  bool would_keep(double seconds) const;
  /// The best first.
  const std::vector<Planned>& found() const { return found_; }
  /// True if there are as many as were asked for, and nothing that takes at least `seconds` can be among them. Where nothing that was
  /// offered passed the limit, what takes least was offered first.
  bool done(double seconds) const { return full() && (!limited_ || seconds >= found_.back().cost.seconds); }

  /// Says of what was offered what comes nearest to the limit.
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
  bool limited_ = false;  // something did not fit as it was offered
  int unfit_ = 0;
  std::vector<Planned> found_;
  std::optional<Planned> smallest_;  // of those that did not fit
};

}  // namespace partita
