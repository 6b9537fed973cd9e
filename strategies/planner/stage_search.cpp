#include "strategies/planner/stage_search.hpp"

#include "partita/base/error.hpp"
#include "strategies/plan/bind.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

namespace partita {

namespace {

constexpr double no_partition = std::numeric_limits<double>::infinity();

/// Returns where groups end in the partition with the least combined cost of its groups; of several, one whose last
/// groups begin earliest. cost(group, first, end) is `no_partition` for an impossible group, and least(group, first,
/// end) a lower bound of the costs of the groups up to `end` that begin at `first` or before. Returns an empty vector
/// if there is no partition.
template <class Cost, class Least, class Combine>
std::vector<int> best_partition(int pieces, int groups, const Cost& cost, const Least& least, const Combine& combine) {
  struct Best {
    double cost = no_partition;
    int first = 0;  // first piece of the last group
  };
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(groups) + 1,
                                      std::vector<Best>(static_cast<std::size_t>(pieces) + 1));
  const auto of = [&](int group, int end) -> Best& { return best[group][end]; };
  of(0, 0).cost = 0;
  for (int g = 1; g <= groups; ++g)
    for (int end = g; end <= pieces - groups + g; ++end)  // each group that follows needs a piece
      for (int first = end - 1; first >= g - 1; --first) {
        Best& here = of(g, end);
        const double at_least = least(g - 1, first, end), before = of(g - 1, first).cost;
        if (at_least > here.cost || at_least == no_partition) break;
        if (before > here.cost || before == no_partition) continue;  // adding a group never reduces the cost
        if (const double with = combine(before, cost(g - 1, first, end)); with <= here.cost && with < no_partition)
          here = {with, first};
      }
  std::vector<int> ends;
  if (of(groups, pieces).cost == no_partition) return ends;
  for (int g = groups, end = pieces; g > 0; end = of(g--, end).first) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  return ends;
}

/// Returns the partition whose largest group cost is smallest; among equal ones, the one that sends least. `least` is
/// as in best_partition().
template <class Cost, class Least>
std::vector<int> even_partition(const StagePartitionCost& price, const Cost& cost, const Least& least) {
  const auto ends =
      best_partition(price.pieces(), price.groups(), cost, least, [](double a, double b) { return std::max(a, b); });
  double largest = 0;
  for (std::size_t g = 0; g < ends.size(); ++g)
    largest = std::max(largest, cost(static_cast<int>(g), g == 0 ? 0 : ends[g - 1], ends[g]));
  const auto sends = [&](int g, int first, int end) {
    return cost(g, first, end) <= largest ? price.boundary_seconds(end) : no_partition;
  };
  const auto sends_at_least = [&](int g, int first, int end) {
    return least(g, first, end) <= largest ? 0 : no_partition;
  };
  return ends.empty() ? ends : best_partition(price.pieces(), price.groups(), sends, sends_at_least, std::plus<>());
}

/// Seconds that differ by this share are equal.
constexpr double rounding = 1e-9;

/// How good a partition is. Exceeding the memory limit is always worse.
struct Score {
  Index beyond = 0;  // bytes over the limit
  double seconds = 0, sends = 0;

  bool better_than(const Score& other) const {
    if (beyond != other.beyond) return beyond < other.beyond;
    if (std::abs(seconds - other.seconds) > rounding * other.seconds) return seconds < other.seconds;
    return sends < other.sends * (1 - rounding);
  }
};

struct Partition {
  std::vector<int> ends;  // empty: no partition yet
  Score score;
};

/// Searches for the fastest partition.
class BoundarySearch {
 public:
  BoundarySearch(StagePartitionCost& price, Index limit, double effort)
      : price_(price), limit_(limit), effort_(effort) {}

  /// Returns the best of all partitions. Returns nothing if their schedules together have more than `most` actions.
  std::optional<Partition> of_all(double most) {
    double partitions = 1;
    for (int g = 1; g < price_.groups(); ++g) partitions *= static_cast<double>(price_.pieces() - g) / g;
    if (partitions * static_cast<double>(price_.actions()) > most) return std::nullopt;
    Partition best;
    effort_ = std::numeric_limits<double>::infinity();
    std::vector<int> ends;
    try_from(0, ends, best);
    return best;
  }

  /// Returns the best partition found from this start, and then repeatedly from the best one so far with some
  /// boundaries moved at random.
  Partition from(const std::vector<int>& ends) {
    Partition best = descended(ends);
    std::mt19937_64 random(1);
    for (int kick = 0; kick < kicks && effort_ > 0; ++kick) {
      const std::vector<int> start = kicked(best.ends, random);
      // Every other kick goes straight by the makespan, since even work would often lead back to the same partition.
      Partition other = kick % 2 == 0 ? descended(start) : descended_by_makespan({start});
      if (other.score.better_than(best.score)) best = std::move(other);
    }
    return best;
  }

 private:
  enum class Judge { work, makespan };
  static constexpr int kicks = 64;

  /// Moves boundaries as long as the score improves: first by the work of the busiest stage, which is cheap to compute,
  /// then by the makespan.
  Partition descended(const std::vector<int>& ends) {
    Partition even;
    offer(ends, Judge::work, even);
    descend(Judge::work, even);
    return descended_by_makespan({ends, even.ends});
  }

  /// Moves boundaries from the best of these starts, as long as the makespan improves.
  Partition descended_by_makespan(const std::vector<std::vector<int>>& starts) {
    Partition best;
    for (const auto& ends : starts) offer(ends, Judge::makespan, best);
    descend(Judge::makespan, best);
    return best;
  }

  /// Replaces `best` if this partition is better. Returns true if it did.
  bool offer(const std::vector<int>& ends, Judge judge, Partition& best) {
    Score score{limit_ == 0 ? 0 : std::max<Index>(price_.bytes(ends) - limit_, 0), price_.work(ends), 0};
    for (const int end : ends) score.sends += price_.boundary_seconds(end);
    effort_ -= price_.pieces();
    const auto gains = [&] { return best.ends.empty() || score.better_than(best.score); };
    if (!gains()) return false;  // work is a lower bound of the makespan
    if (judge == Judge::makespan) {
      effort_ -= static_cast<double>(price_.actions());
      const bool time_decides = !best.ends.empty() && score.beyond == best.score.beyond;
      score.seconds =
          time_decides ? price_.makespan(ends, best.score.seconds * (1 + 2 * rounding)) : price_.makespan(ends);
      if (!gains()) return false;
    }
    best = {ends, score};
    return true;
  }

  void try_from(int first, std::vector<int>& ends, Partition& best) {
    const int left = price_.groups() - static_cast<int>(ends.size());
    const int last = price_.pieces() - left + 1;
    for (int end = left == 1 ? last : first + 1; end <= last; ++end) {
      ends.push_back(end);
      left == 1 ? static_cast<void>(offer(ends, Judge::makespan, best)) : try_from(end, ends, best);
      ends.pop_back();
    }
  }

  void descend(Judge judge, Partition& best) {
    while (effort_ > 0 && (move_one(judge, best) || move_two(judge, best))) {
    }
  }

  /// Tries to move one boundary to any free position.
  bool move_one(Judge judge, Partition& best) {
    bool moved = false;
    for (std::size_t b = 0; b + 1 < best.ends.size(); ++b)
      for (int end = 1; end < price_.pieces() && effort_ > 0; ++end)
        if (!std::binary_search(best.ends.begin(), best.ends.end(), end))
          moved = offer(with(best.ends, b, end), judge, best) || moved;
    return moved;
  }

  /// Tries to move two boundaries by a few pieces each.
  bool move_two(Judge judge, Partition& best) {
    constexpr int reach = 2;
    for (std::size_t a = 0; a + 1 < best.ends.size(); ++a)
      for (std::size_t b = a + 1; b + 1 < best.ends.size(); ++b)
        for (int i = -reach; i <= reach; ++i)
          for (int j = -reach; j <= reach && effort_ > 0; ++j) {
            std::vector<int> ends = best.ends;
            ends[a] += i;
            ends[b] += j;
            const auto out_of_order = std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>());
            if (ends.front() > 0 && out_of_order == ends.end() && offer(ends, judge, best)) return true;
          }
    return false;
  }

  static std::vector<int> with(std::vector<int> ends, std::size_t boundary, int end) {
    ends[boundary] = end;
    std::sort(ends.begin(), ends.end());
    return ends;
  }

  /// Moves some boundaries at random. The random numbers are the same in every run, because all ranks must find the
  /// same partition.
  std::vector<int> kicked(std::vector<int> ends, std::mt19937_64& random) const {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t boundaries = ends.size() - 1;
    for (std::size_t i = 0; i <= boundaries / 2; ++i) {
      const auto end = static_cast<int>(1 + below(static_cast<std::size_t>(price_.pieces()) - 1));
      if (!std::binary_search(ends.begin(), ends.end(), end)) ends = with(std::move(ends), below(boundaries), end);
    }
    return ends;
  }

  StagePartitionCost& price_;
  Index limit_;
  double effort_;  // remaining effort; one unit is about one simulated action
};

/// Returns the strategy with all layers in one stage and one microbatch.
Strategy in_one_stage(const Strategy& strategy) {
  Strategy alone = strategy;
  return alone.stages(1).schedule(ScheduleKind::single, 1);
}

Strategy with_ends(const Strategy& strategy, const std::vector<std::string>& names, const std::vector<int>& ends) {
  Strategy named = strategy;
  named.stages(1);
  int first = 0;
  for (const int end : ends) {
    named.group({names[first], names[static_cast<std::size_t>(end) - 1]});
    first = end;
  }
  return named;
}

}  // namespace

FoundPartition search_partition(StagePartitionCost& price, Index limit, double most, double effort) {
  BoundarySearch search(price, limit, effort);
  std::optional<Partition> best = search.of_all(most);
  if (!best) {
    const auto fits = [&](int g, int first, int end) { return limit == 0 || price.bytes(g, first, end) <= limit; };
    const auto seconds = [&](int g, int first, int end) {
      return fits(g, first, end) ? price.seconds(first, end) : no_partition;
    };
    const auto least = [&](int g, int first, int end) {
      return fits(g, first, end) ? price.least_seconds(first, end) : no_partition;
    };
    const auto bytes = [&](int g, int first, int end) { return static_cast<double>(price.bytes(g, first, end)); };
    const auto even = even_partition(price, seconds, least);
    best = search.from(even.empty() ? even_partition(price, bytes, bytes) : even);
    if (best->score.beyond > 0 && !even.empty())
      if (Partition other = BoundarySearch(price, limit, effort).from(even_partition(price, bytes, bytes));
          other.score.better_than(best->score))
        best = std::move(other);
  }
  const Index held = price.bytes(best->ends), least = price.kept_bytes(best->ends);
  return {std::move(best->ends), held, least};
}

Plan bind_single_stage(const SearchContext& context, const Strategy& strategy) {
  const Model& model = context.model;
  const Workload& workload = context.workload;
  const auto groups = strategy.stages_of_groups().size(), layers = model.layers().size();
  if (groups > layers)
    fail("the model '{}' has {} layers, too few for {} stages of {} {} of layers each", model.name(), layers,
         strategy.stage_count(), strategy.groups_per_stage(), strategy.groups_per_stage() == 1 ? "group" : "groups");
  return bind(model, in_one_stage(strategy), microbatch_of(workload, microbatches_of(strategy, workload)),
              *context.bound);
}

OpenStages::OpenStages(const Plan& single_stage, const Strategy& strategy, const SearchContext& context)
    : strategy_(strategy),
      price_(single_stage, *context.pricer,
             request_of(strategy, strategy.stage_count(), microbatches_of(strategy, context.workload)),
             context.bound->schedules) {
  for (const auto& layer : single_stage.layers) names_.push_back(layer.name);
}

PlacedStages OpenStages::place(Index limit, double effort) {
  FoundPartition found = search_partition(price_, limit, effort, effort);
  for (int& end : found.ends) end = price_.layer_of(end);
  return {with_ends(strategy_, names_, found.ends), found.held, found.least};
}

PlacedStages OpenStages::place(Index limit, double effort, const std::function<Index(const Strategy&)>& held) {
  if (price_.least_kept_bytes() > limit) return place(limit, 0);
  constexpr int most = 4;  // maximum number of tries
  std::optional<PlacedStages> least;
  Index aim = limit;
  int tries = 0;
  do {
    PlacedStages next = place(aim, effort);
    if (next.least > limit) {
      if (!least) least = std::move(next);
      break;
    }
    const Index counted = next.held;
    const Index now = next.held = held(next.strategy);
    if (!least || now < least->held) least = std::move(next);
    if (now <= limit || counted > aim) break;  // the bound plan fits, or no partition is counted as smaller
    aim = std::min(aim - (now - limit), counted - 1);
  } while (++tries < most && aim > 0);
  return std::move(*least);
}

}  // namespace partita
