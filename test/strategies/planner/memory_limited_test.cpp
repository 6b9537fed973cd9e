// Within a memory limit, a strategy is kept in its fastest variant that fits.
#include "strategies/planner/memory_limited.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "test/strategies/planner/variants.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <vector>

namespace partita::test::memory_limited_test {
namespace {

TEST(MemoryLimitedSearch, TakesTheFastestVariantThatFits) {
  const Workload workload{.batch = 32, .optimizer = {}};
  Model model("images");  // activations take most of its memory
  auto t = model.input("in", {.channels = 3, .spatial = {32, 32}});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    t = model.relu(std::string(name) + "r", model.conv(name, t, {.filters = 32, .kernel = 3, .padding = 1}));
  model.softmax_cross_entropy("loss", model.linear("last", t, {.features = 10}));
  Strategy staged;
  staged.schedule("gpipe", 4).group({"in", "dr"}).group({"e", "loss"});
  int by_microbatches = 0, by_recomputing = 0, by_kept = 0, unfit = 0;
  struct Case {
    Strategy strategy;
    int data;  // ranks that share samples
    int most;  // maximum number of microbatches
  };
  const Machine machine = default_machine();
  for (const auto& [strategy, data, most] :
       {Case{Strategy("data=2"), 2, 16}, Case{Strategy("y=2").layer("*", {.output = "N H@y"}), 1, 32},
        Case{staged, 1, 32}, Case{staged, 1, 4}, Case{Strategy("data=2"), 2, 1}}) {
    const auto kept = layers_to_keep(bind(model, strategy, workload));
    for (const double part : {0.9, 0.7, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2, 0.1, 0.02}) {
      const Cost own = estimate(bind(model, strategy, workload), machine);
      const auto limit = static_cast<Index>(part * static_cast<double>(own.memory.total));
      const PlannerOptions options{.ranks = 2, .memory_limit = limit, .best = 1, .most_microbatches = most};
      const KernelTimes times;
      const SearchContext context{model, workload, machine, times};
      MemoryLimitedSearch best(context, options);
      best.offer({strategy, data, own.seconds});
      std::optional<Planned> expected;
      for (const Strategy& variant : variants(strategy, most, kept)) {
        const Cost cost = estimate(bind(model, variant, workload), machine);
        if (cost.memory.total <= limit && (!expected || cost.seconds < expected->cost.seconds))
          expected = {variant, cost};
      }
      ASSERT_EQ(best.found().empty(), !expected) << part << "\n" << strategy.print();
      unfit += best.found().empty();
      if (!expected) continue;
      EXPECT_DOUBLE_EQ(best.found().front().cost.seconds, expected->cost.seconds) << part << "\n"
                                                                                  << expected->strategy.print();
      by_microbatches += expected->strategy.microbatches() > strategy.microbatches();
      const bool recomputes = expected->strategy.print().find("recompute = true") != std::string::npos;
      by_recomputing += recomputes;
      by_kept += recomputes && !kept.empty();
    }
  }
  EXPECT_GT(by_microbatches, 5);
  EXPECT_GT(by_recomputing, by_kept);
  EXPECT_GT(by_kept, 0);
  EXPECT_GT(unfit, 0);
}

// A search that has found something neither places nor replays what cannot be faster. It finds what searches find that
// have found nothing before.
TEST(MemoryLimitedSearch, LeavesOutOnlyWhatIsSlower) {
  const Workload workload{.batch = 256, .optimizer = {}};
  Model model("rows");
  auto t = model.input("in", {.channels = 64});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    t = model.relu(std::string(name) + "r", model.linear(name, t, {.features = 128}));
  model.softmax_cross_entropy("loss", model.linear("last", t, {.features = 10}));
  const Machine machine = default_machine();
  const KernelTimes times;
  const SearchContext context{model, workload, machine, times};
  std::vector<UnplacedStrategy> offers;
  Index most = 0;  // bytes
  for (const char* kind : {"1f1b", "zb-h1"})
    for (int microbatches = 1; microbatches <= 16; microbatches *= 2) {
      Strategy strategy;
      strategy.stages(2).schedule(kind, microbatches);
      const Cost own =
          estimate(bind(model, place_stages(model, strategy, workload, machine, times), workload), machine);
      offers.push_back({strategy, 1, own.seconds});
      most = std::max(most, own.memory.total);
    }
  const auto found = [&](Index limit, std::vector<UnplacedStrategy> offered) {
    const PlannerOptions options{.ranks = 2, .memory_limit = limit, .best = 1};
    MemoryLimitedSearch search(context, options);
    for (const auto& each : offered) search.offer(each);
    return search.found().empty() ? std::numeric_limits<double>::infinity() : search.found().front().cost.seconds;
  };
  std::set<double> all;
  for (const double part : {1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3}) {
    const auto limit = static_cast<Index>(part * static_cast<double>(most));
    double least = std::numeric_limits<double>::infinity();
    for (const auto& each : offers) least = std::min(least, found(limit, {each}));
    all.insert(least);
    EXPECT_EQ(found(limit, offers), least) << part;
    EXPECT_EQ(found(limit, {offers.rbegin(), offers.rend()}), least) << part;
  }
  EXPECT_GT(all.size(), 2U) << "the limit decides";
}

}  // namespace
}  // namespace partita::test::memory_limited_test
