// search_partition() against every partition of small models, by the prices of StagePartitionCost: exact where it can
// try all, and what it promises where it cannot. stage_partition_test.cpp compares the result with the price of bound
// plans.
#include "strategies/planner/stage_search.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>

namespace partita::test::stage_search_test {

namespace {

/// Linear layers of these widths between an input and a loss. A width below 0 stands for a concatenation with the
/// input, so that the input crosses every boundary before it.
Model chain(const std::vector<Index>& widths) {
  Model m("chain");
  const auto in = m.input("in", {.channels = 8, .spatial = {}});
  auto t = in;
  for (std::size_t i = 0; i < widths.size(); ++i)
    t = widths[i] < 0 ? m.concatenate(fmt::format("l{}", i), {t, in})
                      : m.linear(fmt::format("l{}", i), t, {.features = widths[i]});
  m.mean_squared_error("loss", t);
  return m;
}

const std::vector<std::vector<Index>>& chains() {
  static const std::vector<std::vector<Index>> all{
      {},                                // the input and the loss alone
      {1},                               //
      {7, 7, 7, 7, 7, 7},                // even
      {500, 1, 1, 1, 300},               // heavy ends
      {3, 2, 401, 2, 3, 5},              // a heavy middle
      {64, 32, 16, 8, 4, 2, 1},          // falling
      {11, -1, 13, -1, 17, -1, 300, 2},  // the input is read again and again
  };
  return all;
}

/// One of so many prices is searched. It has no factor in common with the stages and microbatches, so all of them come.
const int one_of = short_run() ? 5 : 1;

ScheduleRequest request_of(const std::string& kind, int stages, int microbatches) {
  ScheduleRequest request;
  request.kind = parse_schedule_kind(kind);
  request.stages = stages;
  request.microbatches = microbatches;
  request.filter_memory = kept_until_backward_filter;
  return request;
}

/// The price of partitions of one model under one schedule.
struct Priced {
  Priced(const std::vector<Index>& widths, const std::string& kind, int stages, int microbatches)
      : model(chain(widths)),
        plan(bound(model, Strategy(), 3)),
        price(plan, pricer, request_of(kind, stages, microbatches), made),
        what(fmt::format("{} layers, {}, {} stages, {} microbatches", model.layers().size(), kind, stages,
                         microbatches)) {}

  bool fits() const { return price.groups() <= price.pieces(); }

  Model model;
  Plan plan;
  Machine machine = round_machine(0.5);
  KernelTimes none;
  PlanPricer pricer{machine, none};
  ScheduleCache made;
  StagePartitionCost price;
  std::string what;
};

/// Calls f with a price for each of these chains, kinds, stages and microbatches whose groups have a layer each.
void for_prices(const std::vector<std::string>& kinds, const std::function<void(Priced&)>& f) {
  int drawn = 0;
  for (const auto& widths : chains())
    for (const auto& kind : kinds)
      for (const int stages : {1, 2, 3, 4})
        for (const int microbatches : {1, 5}) {
          if (kind == "chimera" && stages % 2 == 1) continue;  // it needs an even number
          if (drawn++ % one_of != 0) continue;
          Priced priced(widths, kind, stages, microbatches);
          if (priced.fits()) f(priced);
        }
}

std::vector<std::string> all_kinds() {
  std::vector<std::string> names;
  for (const auto& generator : schedule_generators()) names.emplace_back(name(generator.kind));
  return names;
}
const std::vector<std::string> one_group_kinds{"gpipe", "1f1b", "zb-h1"};

/// There is a boundary that can move.
bool has_boundary(const Priced& priced) { return priced.price.groups() > 1; }

/// Every way to cut the layers into as many groups as the schedule has: where they end.
std::vector<std::vector<int>> all_partitions(int layers, int groups) {
  if (groups == 1) return {{layers}};
  std::vector<std::vector<int>> all;
  for (int last = groups - 1; last < layers; ++last)
    for (auto ends : all_partitions(last, groups - 1)) {
      ends.push_back(layers);
      all.push_back(ends);
    }
  return all;
}

std::vector<std::vector<int>> all_partitions(const Priced& priced) {
  return all_partitions(priced.price.pieces(), priced.price.groups());
}

double sent(const StagePartitionCost& price, const std::vector<int>& ends) {
  double seconds = 0;
  for (const int end : ends) seconds += price.boundary_seconds(end);
  return seconds;
}

/// The group that takes longest.
double slowest(const StagePartitionCost& price, const std::vector<int>& ends) {
  double most = 0;
  for (std::size_t g = 0; g < ends.size(); ++g) most = std::max(most, price.seconds(g == 0 ? 0 : ends[g - 1], ends[g]));
  return most;
}

constexpr double rounding = 1e-9;

/// Nothing is better within the limit: first what exceeds it, then seconds, then what is sent.
void expect_best(Priced& priced, Index limit) {
  auto& price = priced.price;
  const auto beyond = [&](const std::vector<int>& ends) {
    return limit == 0 ? 0 : std::max<Index>(price.bytes(ends) - limit, 0);
  };
  Index least_beyond = std::numeric_limits<Index>::max();
  double least = std::numeric_limits<double>::infinity(), least_sent = least;
  const auto partitions = all_partitions(priced);
  for (const auto& ends : partitions) least_beyond = std::min(least_beyond, beyond(ends));
  for (const auto& ends : partitions)
    if (beyond(ends) == least_beyond) least = std::min(least, price.makespan(ends));
  for (const auto& ends : partitions)
    if (beyond(ends) == least_beyond && price.makespan(ends) <= least * (1 + rounding))
      least_sent = std::min(least_sent, sent(price, ends));

  const FoundPartition found = search_partition(price, limit);
  const std::string what = fmt::format("{}, limit {}: [{}]", priced.what, limit, fmt::join(found.ends, " "));
  ASSERT_EQ(std::count(partitions.begin(), partitions.end(), found.ends), 1) << what;
  EXPECT_EQ(found.held, price.bytes(found.ends)) << what;
  EXPECT_EQ(beyond(found.ends), least_beyond) << what;
  EXPECT_LE(price.makespan(found.ends), least * (1 + 2 * rounding)) << what;
  EXPECT_LE(sent(price, found.ends), least_sent * (1 + 2 * rounding)) << what;
}

}  // namespace

TEST(StageSearch, OneGroupHasAllLayers) {
  Priced priced({3, 2}, "1f1b", 1, 2);
  EXPECT_EQ(search_partition(priced.price, 0).ends, std::vector<int>{4});
}

TEST(StageSearch, AsManyGroupsAsLayersHaveOneEach) {
  Priced priced({3, 2}, "1f1b", 4, 2);
  EXPECT_EQ(search_partition(priced.price, 0).ends, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(search_partition(priced.price, 0, 0).ends, (std::vector<int>{1, 2, 3, 4}));
}

TEST(StageSearch, NoPartitionIsFaster) {
  int searched = 0;
  for_prices(all_kinds(), [&](Priced& priced) {
    expect_best(priced, 0);
    ++searched;
  });
  EXPECT_GT(searched, 450 / one_of);
}

// The limits are what partitions hold, and a byte less: each time another partition, or none, fits.
TEST(StageSearch, NoPartitionWithinTheLimitIsFaster) {
  for_prices({"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v", "chimera"}, [](Priced& priced) {
    std::set<Index> held;
    for (const auto& ends : all_partitions(priced)) held.insert(priced.price.bytes(ends));
    const Index middle = *std::next(held.begin(), static_cast<std::ptrdiff_t>(held.size() / 2));
    for (const Index limit : {*held.begin() - 1, *held.begin(), middle - 1, middle, *held.rbegin()})
      expect_best(priced, limit);
    expect_best(priced, 1);
  });
}

// `most` = 0 leaves no partition to try, so that boundaries move from the evenest one.
TEST(StageSearch, MovingBoundariesIsNotSlowerThanTheEvenestPartition) {
  for_prices(all_kinds(), [](Priced& priced) {
    if (!has_boundary(priced)) return;
    auto& price = priced.price;
    double smallest = std::numeric_limits<double>::infinity(), even = 0;
    for (const auto& ends : all_partitions(priced)) smallest = std::min(smallest, slowest(price, ends));
    for (const auto& ends : all_partitions(priced))  // of several evenest ones it begins at one
      if (slowest(price, ends) <= smallest * (1 + rounding)) even = std::max(even, price.makespan(ends));
    for (const double effort : {0.0, 1000.0, affordable}) {
      const FoundPartition found = search_partition(price, 0, 0, effort);
      EXPECT_LE(price.makespan(found.ends), even * (1 + rounding))
          << priced.what << ", effort " << effort << ": [" << fmt::format("{}", fmt::join(found.ends, " ")) << "]";
      EXPECT_EQ(found.held, price.bytes(found.ends)) << priced.what;
    }
  });
}

// With a group a stage, dynamic programming says whether a partition fits.
TEST(StageSearch, MovingBoundariesFindsAPartitionThatFits) {
  for_prices(one_group_kinds, [](Priced& priced) {
    if (!has_boundary(priced)) return;
    auto& price = priced.price;
    Index least = std::numeric_limits<Index>::max();
    for (const auto& ends : all_partitions(priced)) least = std::min(least, price.bytes(ends));
    for (const Index limit : {least, least + least / 10, 2 * least})
      EXPECT_LE(search_partition(price, limit, 0).held, limit) << priced.what;
    EXPECT_EQ(search_partition(price, least - 1, 0).held, least) << priced.what << ": exceeds the limit least";
  });
}

// Without effort it stays at the evenest partition of those that fit.
TEST(StageSearch, WithinALimitMovingBoundariesIsNotSlowerThanTheEvenestPartitionThatFits) {
  for_prices(one_group_kinds, [](Priced& priced) {
    if (!has_boundary(priced)) return;
    auto& price = priced.price;
    std::set<Index> held;
    for (const auto& ends : all_partitions(priced)) held.insert(price.bytes(ends));
    for (const Index limit : held) {
      double smallest = std::numeric_limits<double>::infinity(), even = 0;
      const auto fits = [&](const std::vector<int>& ends) { return price.bytes(ends) <= limit; };
      for (const auto& ends : all_partitions(priced))
        if (fits(ends)) smallest = std::min(smallest, slowest(price, ends));
      for (const auto& ends : all_partitions(priced))
        if (fits(ends) && slowest(price, ends) <= smallest * (1 + rounding))
          even = std::max(even, price.makespan(ends));
      const FoundPartition found = search_partition(price, limit, 0, 0);
      EXPECT_LE(price.makespan(found.ends), even * (1 + rounding)) << priced.what << ", limit " << limit;
    }
  });
}

TEST(StageSearch, FindsTheSamePartitionInEveryRun) {
  for_prices({"1f1b", "zb-v"}, [](Priced& priced) {
    if (!has_boundary(priced)) return;
    const FoundPartition first = search_partition(priced.price, 0, 0), second = search_partition(priced.price, 0, 0);
    EXPECT_EQ(first.ends, second.ends) << priced.what;
  });
}

// What makespan() returns instead of a makespan beyond its limit lies between the two, and is the makespan itself where
// equal stages wait only while the pipeline fills and drains.
TEST(StageSearch, MakespansBeyondALimitAreBounds) {
  for_prices(all_kinds(), [](Priced& priced) {
    for (const auto& ends : all_partitions(priced)) {
      const double all = priced.price.makespan(ends), least = priced.price.makespan(ends, 0);
      EXPECT_LE(least, all * (1 + rounding)) << priced.what;
      EXPECT_LE(priced.price.work(ends), least * (1 + rounding)) << priced.what;
      EXPECT_EQ(priced.price.makespan(ends, all * (1 + rounding)), all) << priced.what;
    }
  });
}

// No order of actions takes less than the work of the stage that works longest.
TEST(StageSearch, WorkBoundsTheMakespan) {
  for_prices(all_kinds(), [](Priced& priced) {
    for (const auto& ends : all_partitions(priced))
      EXPECT_LE(priced.price.work(ends), priced.price.makespan(ends) * (1 + rounding))
          << priced.what << ": [" << fmt::format("{}", fmt::join(ends, " ")) << "]";
  });
}

// What is computed without a partition is less than what any partition takes or holds.
TEST(StageSearch, BoundsHoldForEveryPartition) {
  for_prices(all_kinds(), [](Priced& priced) {
    const StagePartitionCost& price = priced.price;
    double work = std::numeric_limits<double>::infinity();
    for (const auto& ends : all_partitions(priced)) {
      work = std::min(work, price.work(ends));
      EXPECT_LE(price.least_kept_bytes(), price.kept_bytes(ends)) << priced.what;
    }
    EXPECT_LE(price.least_work(), work * (1 + rounding)) << priced.what;
    EXPECT_GT(price.least_work(), 0) << priced.what;
    for (int end = 1; end <= price.pieces(); ++end)
      for (int first = end - 1; first >= 0; --first)
        for (int before = first; before >= 0; --before)
          EXPECT_LE(price.least_seconds(first, end), price.seconds(before, end)) << priced.what;
  });
}

// Without a second stage nothing waits and nothing travels: one stage's step is the sum of its layers and of its
// update.
TEST(StageSearch, OneStageTakesWhatItsLayersTake) {
  for (const int microbatches : {1, 5}) {
    Priced priced({11, 13}, "1f1b", 1, microbatches);
    auto& price = priced.price;
    const std::vector<int> all{price.pieces()};
    EXPECT_EQ(price.boundary_seconds(price.pieces()), 0);
    EXPECT_GT(price.makespan(all), microbatches * price.seconds(0, price.pieces()));
    expect_seconds(price.makespan(all), price.work(all));
    const Cost cost = estimate(priced.plan, round_machine(0.5));
    double each = 0;
    for (int i = 0; i < price.pieces(); ++i) {
      const LayerCost& layer = cost.layers[i];
      const double alone = price.seconds(i, i + 1) -
                           0.5 * (price.boundary_seconds(i) + price.boundary_seconds(i + 1));  // half is hidden
      expect_seconds(alone, layer.forward.total() + layer.backward_data.total() + layer.backward_filter.total());
      each += alone;
    }
    expect_seconds(price.seconds(0, price.pieces()), each, "layers add up, but for what crosses between them");
  }
}

// What crosses a boundary is every output from before it that is read behind it, once: here the input and one layer's
// output.
TEST(StageSearch, EveryOutputThatIsReadBehindABoundaryCrossesItOnce) {
  Priced priced({5, 6, -1, -1}, "1f1b", 2, 2);  // in, l0, l1, l2 = [l1 in], l3 = [l2 in], loss
  const auto& price = priced.price;
  const auto message = [](int features) { return 1 * us + 3 * features * 4 * 1e-9; };  // 3 samples of f32
  expect_seconds(price.boundary_seconds(0), 0);
  expect_seconds(price.boundary_seconds(1), message(8));
  expect_seconds(price.boundary_seconds(2), message(8) + message(5));
  expect_seconds(price.boundary_seconds(3), message(8) + message(6));
  expect_seconds(price.boundary_seconds(4), message(8) + message(14));
  expect_seconds(price.boundary_seconds(5), message(22));
  expect_seconds(price.boundary_seconds(6), 0);
}

}  // namespace partita::test::stage_search_test
