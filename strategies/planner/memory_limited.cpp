#include "strategies/planner/memory_limited.hpp"

#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/planner/candidate.hpp"
#include "strategies/planner/checkpointing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace partita {

namespace {

/// Two strategies of one kind whose step times differ by less than this fraction are taken to differ only in the names
/// of axes. A larger value would drop distinct strategies.
constexpr double same_step = 1e-4;

Strategy with_microbatches(const Strategy& strategy, int microbatches) {
  Strategy more = strategy;
  if (microbatches == strategy.microbatches()) return more;
  const bool single = strategy.schedule() == ScheduleKind::single;
  return more.schedule(single ? ScheduleKind::one_f_one_b : strategy.schedule(), microbatches,
                       single ? 0 : strategy.groups_per_stage());
}

/// Returns the next larger number of microbatches to try: the smallest multiple that divides the samples of a rank, if
/// that is at most four times as many, else twice as many.
int next_microbatches(int microbatches, Index samples) {
  for (int times = 2; times <= 4; ++times)
    if (samples % (times * Index{microbatches}) == 0) return times * microbatches;
  return 2 * microbatches;
}

}  // namespace

bool nearly_equal(double seconds, double others) { return std::abs(others - seconds) < same_step * seconds; }

Index memory_limit(const PlannerOptions& options, const Machine& machine) {
  return options.memory_limit > 0 ? options.memory_limit : static_cast<Index>(machine.memory.value);
}

MemoryLimitedSearch::MemoryLimitedSearch(const SearchContext& context, const PlannerOptions& options)
    : context_(context), options_(options), limit_(memory_limit(options, context.machine)) {}

Strategy MemoryLimitedSearch::placed(const Plan& single_stage, const Strategy& strategy, double effort) {
  OpenStages stages(single_stage, strategy, context_);
  PlacedStages one = stages.place(limit_, effort);
  return one.held <= limit_ ? std::move(one.strategy) : stages.place(0, effort).strategy;
}

void MemoryLimitedSearch::offer(const UnplacedStrategy& offered) {
  if (!would_keep(kind_of(context_.model, offered.strategy), offered.seconds)) return;
  // Until something exceeds the limit, the first evaluation is the final one, so it is thorough.
  const double effort = limited_ ? quick : thorough;
  auto best = within_limit(offered.strategy, effort);
  if (!best) {
    limited_ = limited_ || !estimated(offered.strategy, effort).too_slow;
    best = fastest_variant(offered);
    if (offered.data > 1) consider_shards(offered, best);
  }
  if (best) keep(limited_ ? thoroughly(std::move(*best)) : std::move(best->planned));
}

void MemoryLimitedSearch::replace(double before, Planned planned) {
  if (planned.cost.memory.total > limit_) return;
  const StrategyKind kind = kind_of(context_.model, planned.strategy);
  for (std::size_t i = found_.size(); i-- > 0;) {
    if (kinds_[i] != kind || !nearly_equal(before, found_[i].cost.seconds)) continue;
    found_.erase(found_.begin() + static_cast<std::ptrdiff_t>(i));
    kinds_.erase(kinds_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  keep(std::move(planned));
}

/// Returns the fastest variant that fits the memory limit, among variants with more microbatches, a sharded optimizer,
/// recomputation, and combinations of these. Returns nothing if even the combination of all does not fit. Where a
/// variant fits without recomputation, none with it is tried. From then on, more microbatches are tried only as long as
/// a shorter bubble makes the step faster. What is too slow to be kept is not tried with less memory, which takes
/// longer still.
std::optional<MemoryLimitedSearch::Variant> MemoryLimitedSearch::fastest_variant(const UnplacedStrategy& offered) {
  const Strategy& strategy = offered.strategy;
  // Without optimizer state to share, a sharded optimizer only needs more memory.
  const bool shares = !context_.workload.optimizer.states().empty();
  const auto smaller = shares ? Strategy::OptimizerState::sharded : Strategy::OptimizerState::replicated;
  const auto larger = shares ? Strategy::OptimizerState::replicated : Strategy::OptimizerState::sharded;
  std::optional<Variant> fastest;
  const bool staged = strategy.stage_count() > 1 || !strategy.groups().empty();
  const auto kept = staged ? std::vector<std::string>() : layers_to_keep(context_.bind(strategy));
  std::map<std::tuple<int, bool, Strategy::OptimizerState>, bool> known;
  constexpr double never = std::numeric_limits<double>::infinity();
  double slow = never;  // seconds of the fastest that is too slow to be kept
  // Returns false if a variant that holds less should be tried.
  const auto consider = [&](int microbatches, bool recompute, Strategy::OptimizerState update) {
    const auto [found, fresh] = known.try_emplace({microbatches, recompute, update});
    if (!fresh) return found->second;
    const Strategy changed = with_microbatches(strategy, microbatches).optimizer_state(update);
    const Strategy unplaced = recompute ? recomputing(changed, kept) : changed;
    auto variant = within_limit(unplaced, quick);
    const Estimated& one = estimated(unplaced, quick);
    found->second = variant || one.too_slow;
    if (one.too_slow) slow = std::min(slow, one.least_seconds);
    if (variant && (!fastest || variant->planned.cost.seconds < fastest->planned.cost.seconds))
      fastest = std::move(variant);
    return found->second;
  };
  const auto either_update = [&](int microbatches, bool recompute) {
    const bool enough = consider(microbatches, recompute, smaller);
    if (enough) consider(microbatches, recompute, larger);  // the variant with more memory may be faster
    return enough;
  };
  const int most = most_microbatches(offered);
  if (!consider(most, true, smaller) && !consider(most, false, smaller)) return fastest;
  const Index samples = context_.workload.batch / offered.data;
  const auto least = [&] { return fastest ? fastest->planned.cost.seconds : slow; };
  slow = never;
  for (int microbatches = strategy.microbatches(); microbatches <= most;
       microbatches = next_microbatches(microbatches, samples)) {
    const double before = least();
    if (!either_update(microbatches, false))
      either_update(microbatches, true);
    else if (least() >= before)
      break;
  }
  return fastest;
}

/// Takes the strategy with weights in shards if it fits and is faster than what was found. Where nothing was found, it
/// also tries its variants that hold less.
void MemoryLimitedSearch::consider_shards(const UnplacedStrategy& offered, std::optional<Variant>& best) {
  UnplacedStrategy shards = offered;
  shards.strategy.shard_weights();
  auto variant = within_limit(shards.strategy, quick);
  if (!variant && !best) variant = fastest_variant(shards);
  if (variant && (!best || variant->planned.cost.seconds < best->planned.cost.seconds)) best = std::move(variant);
}

/// Raises the strategy's number of microbatches while each rank still has a sample of every microbatch, within the
/// options' maximum.
int MemoryLimitedSearch::most_microbatches(const UnplacedStrategy& offered) const {
  const Index samples = context_.workload.batch / offered.data;
  int most = offered.strategy.microbatches();
  for (int more = most;; most = more) {
    more = next_microbatches(most, samples);
    if (more > samples || more > partita::most_microbatches(context_.model, options_) ||
        more > options_.most_microbatches * offered.strategy.stage_count())
      return most;
  }
}

/// Returns nothing if the strategy does not fit the memory limit.
std::optional<MemoryLimitedSearch::Variant> MemoryLimitedSearch::within_limit(const Strategy& unplaced, double effort) {
  const Estimated& one = estimated(unplaced, effort);
  if (one.cost) return Variant{unplaced, {one.strategy, *one.cost}};
  if (one.too_slow) return std::nullopt;
  ++unfit_;
  if (!smallest_ || one.held < smallest_->held) smallest_ = one;
  return std::nullopt;
}

Planned MemoryLimitedSearch::thoroughly(Variant variant) {
  if (variant.unplaced.stage_count() == 1) return std::move(variant.planned);
  const Estimated& better = estimated(variant.unplaced, thorough);
  if (!better.cost || better.cost->seconds >= variant.planned.cost.seconds) return std::move(variant.planned);
  return {better.strategy, *better.cost};
}

const MemoryLimitedSearch::Estimated& MemoryLimitedSearch::estimated(const Strategy& unplaced, double effort) {
  const auto [found, fresh] = known_.try_emplace({unplaced.print(), effort});
  if (fresh) found->second = estimate(unplaced, effort);
  return found->second;
}

MemoryLimitedSearch::Estimated MemoryLimitedSearch::estimate(const Strategy& unplaced, double effort) const {
  const StrategyKind kind = kind_of(context_.model, unplaced);
  Estimated one;
  const auto is_slow = [&](double seconds) {
    one.least_seconds = seconds;
    return one.too_slow = !would_keep(kind, seconds);
  };
  std::optional<Cost> cost;  // of the strategy whose memory was counted last
  const auto held = [&](const Strategy& strategy) {
    cost.reset();
    const std::optional<Plan> plan = context_.bind_if_it_can(strategy);
    if (!plan) return std::numeric_limits<Index>::max();
    cost = context_.pricer->simulated(*plan);
    if (is_slow(cost->seconds)) return Index{0};  // no partition that holds less is faster
    const FullestRank fullest = fullest_rank(*plan);
    cost->memory = fullest.memory;
    cost->memory_rank = fullest.rank;
    return fullest.memory.total;
  };
  if (unplaced.stage_count() == 1) {
    one.strategy = unplaced;
    one.held = held(unplaced);
  } else {
    OpenStages stages(bind_single_stage(context_, unplaced), unplaced, context_);
    if (is_slow(stages.least_seconds())) return one;
    PlacedStages placed = stages.place(limit_, effort, held);
    one.strategy = std::move(placed.strategy);
    one.held = placed.held;
  }
  if (one.too_slow || one.held > limit_) return one;
  if (!cost || cost->memory.total != one.held) held(one.strategy);  // the last one tried was not the smallest
  if (!one.too_slow) one.cost = std::move(cost);
  return one;
}

std::vector<KindTime> MemoryLimitedSearch::kinds_found() const {
  std::vector<KindTime> all;
  for (std::size_t i = 0; i < found_.size(); ++i) all.push_back({kinds_[i], found_[i].cost.seconds});
  return all;
}

bool MemoryLimitedSearch::would_keep(const StrategyKind& kind, double seconds) const {
  auto all = kinds_found();
  if (std::any_of(all.begin(), all.end(),
                  [&](const KindTime& other) { return other.kind == kind && nearly_equal(seconds, other.seconds); }))
    return false;
  all.push_back({kind, seconds});
  const auto kept = fastest_of_kinds(all, options_.best);
  return std::find(kept.begin(), kept.end(), found_.size()) != kept.end();
}

bool MemoryLimitedSearch::has_better(const StrategyKind& kind, double seconds) const {
  const auto all = kinds_found();
  return full() && std::any_of(all.begin(), all.end(),
                               [&](const KindTime& other) { return other.kind == kind && other.seconds <= seconds; });
}

bool MemoryLimitedSearch::done(double seconds) const {
  if (!full() || seconds < (limited_ ? found_.back() : found_.front()).cost.seconds) return false;
  const double slow = of_interest * found_.front().cost.seconds;
  std::set<StrategyKind> kinds;
  for (const KindTime& each : kinds_found())
    if (each.seconds <= slow) kinds.insert(each.kind);
  return kinds.size() == found_.size() || seconds > slow;
}

void MemoryLimitedSearch::keep(Planned planned) {
  const StrategyKind kind = kind_of(context_.model, planned.strategy);
  if (!would_keep(kind, planned.cost.seconds)) return;
  found_.push_back(std::move(planned));
  kinds_.push_back(kind);
  const auto best = fastest_of_kinds(kinds_found(), options_.best);
  std::vector<Planned> kept;
  std::vector<StrategyKind> kinds;
  for (const std::size_t which : best) {
    kept.push_back(std::move(found_[which]));
    kinds.push_back(kinds_[which]);
  }
  for (std::size_t i = 0; i < found_.size(); ++i)
    if (std::find(best.begin(), best.end(), i) == best.end()) displace(std::move(found_[i]));
  found_ = std::move(kept);
  kinds_ = std::move(kinds);
}

void MemoryLimitedSearch::displace(Planned planned) {
  const auto faster = [](const Planned& a, const Planned& b) { return a.cost.seconds < b.cost.seconds; };
  displaced_.insert(std::upper_bound(displaced_.begin(), displaced_.end(), planned, faster), std::move(planned));
  if (displaced_.size() > static_cast<std::size_t>(options_.best)) displaced_.pop_back();
}

void MemoryLimitedSearch::fail_unfit() const {
  const Planned smallest{smallest_->strategy, context_.pricer->cost(context_.bind(smallest_->strategy))};
  const MemoryPeak& least = smallest.cost.memory;
  throw NothingFits(
      fmt::format("the model '{}' does not fit {} ranks with a batch of {}: of the {} strategies tried, "
                  "the smallest holds {} on a rank ({}), {} more than the limit of {}; use more ranks, a "
                  "smaller batch, or ranks with more memory",
                  context_.model.name(), options_.ranks, context_.workload.batch, unfit_, print_bytes(least.total),
                  least.each.print(), print_bytes(least.total - limit_), print_bytes(limit_)),
      smallest);
}

}  // namespace partita
