#include "strategies/planner/memory_limited.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"

#include "strategies/planner/checkpointing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace partita {

namespace {

/// Two strategies whose step times differ by less than this fraction are taken to differ only in the names of axes. A
/// larger value would drop distinct strategies.
constexpr double same_step = 1e-4;

Strategy cut(const Strategy& strategy, int microbatches) {
  Strategy more = strategy;
  if (microbatches == strategy.microbatches()) return more;
  const bool single = strategy.schedule() == ScheduleKind::single;
  return more.schedule(single ? ScheduleKind::one_f_one_b : strategy.schedule(), microbatches,
                       single ? 0 : strategy.groups_per_stage());
}

/// Number of ranks that share samples. The planner names their axis "data".
int data_ranks(const Strategy& strategy) {
  const int axis = strategy.grid().find("data");
  return axis < 0 ? 1 : strategy.grid().extent(axis);
}

}  // namespace

MemoryLimitedSearch::MemoryLimitedSearch(const Model& model, const Workload& workload, const Machine& machine,
                                         const KernelTimes& times, const PlannerOptions& options)
    : model_(model),
      workload_(workload),
      machine_(machine),
      times_(times),
      options_(options),
      limit_(options.memory_limit > 0 ? options.memory_limit : static_cast<Index>(machine.memory.value)) {}

Strategy MemoryLimitedSearch::placed(const Plan& uncut, const Strategy& strategy, double effort) {
  const auto within = [&](Index limit) {
    return partition_stages(uncut, strategy, workload_, machine_, times_, limit, effort, made_);
  };
  PlacedStages one = within(limit_);
  return one.held <= limit_ ? std::move(one.strategy) : within(0).strategy;
}

void MemoryLimitedSearch::offer(const Strategy& strategy, double seconds) {
  if (!would_keep(seconds)) return;
  auto best = fitting(
      // until something exceeds the limit, the first evaluation is the final one, so it is thorough
      strategy, limited_ ? quick : thorough);
  if (!best) {
    limited_ = true;
    best = fastest_variant(strategy);
  }
  if (best) keep(limited_ ? thoroughly(std::move(*best)) : std::move(best->planned));
}

/// Returns the fastest variant that fits the memory limit, among variants with more microbatches, a sharded optimizer,
/// recomputation, and combinations of these. Returns nothing if even the combination of all does not fit. Once a
/// variant without recomputation fits, more microbatches are tried only as long as a shorter bubble makes the step
/// faster.
std::optional<MemoryLimitedSearch::Variant> MemoryLimitedSearch::fastest_variant(const Strategy& strategy) {
  // Without optimizer state to share, a sharded optimizer only needs more memory.
  const bool shares = !workload_.optimizer.states().empty();
  const auto smaller = shares ? Strategy::OptimizerState::sharded : Strategy::OptimizerState::replicated;
  const auto larger = shares ? Strategy::OptimizerState::replicated : Strategy::OptimizerState::sharded;
  std::optional<Variant> fastest;
  const bool staged = strategy.stage_count() > 1 || !strategy.groups().empty();
  const auto kept = staged ? std::vector<std::string>() : layers_to_keep(bind(model_, strategy, workload_));
  const auto consider = [&](int microbatches, bool recompute, Strategy::OptimizerState update) {
    const Strategy changed = cut(strategy, microbatches).optimizer_state(update);
    auto variant = fitting(recompute ? recomputing(changed, kept) : changed, quick);
    const bool fits = variant.has_value();
    if (fits && (!fastest || variant->planned.cost.seconds < fastest->planned.cost.seconds))
      fastest = std::move(variant);
    return fits;
  };
  const auto either_update = [&](int microbatches, bool recompute) {
    const bool fits = consider(microbatches, recompute, smaller);
    if (fits) consider(microbatches, recompute, larger);  // the variant with more memory may be faster
    return fits;
  };
  const int most = most_microbatches(strategy);
  if (!consider(most, true, smaller) && !consider(most, false, smaller)) return fastest;
  for (int microbatches = strategy.microbatches(); microbatches <= most; microbatches *= 2) {
    const double before = fastest ? fastest->planned.cost.seconds : std::numeric_limits<double>::infinity();
    either_update(microbatches, true);  // tried too, since recomputation does not always save memory
    if (either_update(microbatches, false) && fastest->planned.cost.seconds >= before) break;
  }
  return fastest;
}

/// Doubles the strategy's number of microbatches while each rank still has a sample of every microbatch, within the
/// options' maximum.
int MemoryLimitedSearch::most_microbatches(const Strategy& strategy) const {
  int most = strategy.microbatches();
  while (2 * most * data_ranks(strategy) <= workload_.batch &&
         2 * most <= options_.most_microbatches * strategy.stage_count())
    most *= 2;
  return most;
}

/// Returns nothing if the strategy does not fit the memory limit.
std::optional<MemoryLimitedSearch::Variant> MemoryLimitedSearch::fitting(const Strategy& unplaced, double effort) {
  Planned one = priced(unplaced, effort);
  if (fits(one)) return Variant{unplaced, std::move(one)};
  ++unfit_;
  if (!smallest_ || one.cost.memory.total < smallest_->cost.memory.total) smallest_ = std::move(one);
  return std::nullopt;
}

Planned MemoryLimitedSearch::thoroughly(Variant variant) {
  if (variant.unplaced.stage_count() == 1) return std::move(variant.planned);
  Planned better = priced(variant.unplaced, thorough);
  return fits(better) && better.cost.seconds < variant.planned.cost.seconds ? better : std::move(variant.planned);
}

Planned MemoryLimitedSearch::priced(const Strategy& unplaced, double effort) {
  const auto price = [&](const Strategy& strategy) {
    return Planned{strategy, estimate(bind_plan(strategy), machine_, times_)};
  };
  if (unplaced.stage_count() == 1) return price(unplaced);
  std::vector<Planned> tried;
  const auto held = [&](const Strategy& strategy) { return tried.emplace_back(price(strategy)).cost.memory.total; };
  partition_within_limit(bind_single_stage(model_, unplaced, workload_), unplaced, workload_, machine_, times_, limit_,
                         effort, made_, held);
  const auto less = [](const Planned& a, const Planned& b) { return a.cost.memory.total < b.cost.memory.total; };
  return *std::min_element(tried.begin(), tried.end(), less);
}

/// See the header. Among strategies that differ only in the names of axes, one is kept.
bool MemoryLimitedSearch::would_keep(double seconds) const {
  const auto same = [&](const Planned& other) { return std::abs(other.cost.seconds - seconds) < same_step * seconds; };
  return std::none_of(found_.begin(), found_.end(), same) && (!full() || seconds < found_.back().cost.seconds);
}

void MemoryLimitedSearch::keep(Planned planned) {
  if (!would_keep(planned.cost.seconds)) return;
  const auto at = std::find_if(found_.begin(), found_.end(),
                               [&](const Planned& other) { return other.cost.seconds > planned.cost.seconds; });
  found_.insert(at, std::move(planned));
  if (found_.size() > static_cast<std::size_t>(options_.best)) found_.pop_back();
}

void MemoryLimitedSearch::fail_unfit() const {
  const MemoryPeak& least = smallest_->cost.memory;
  throw NothingFits(fmt::format("the model '{}' does not fit {} ranks with a batch of {}: of the {} strategies tried, "
                                "the smallest holds {} on a rank ({}), {} more than the limit of {}; use more ranks, a "
                                "smaller batch, or ranks with more memory",
                                model_.name(), options_.ranks, workload_.batch, unfit_, print_bytes(least.total),
                                least.each.print(), print_bytes(least.total - limit_), print_bytes(limit_)),
                    *smallest_);
}

}  // namespace partita
