// Within a memory limit, a strategy is kept in its fastest variant that fits.
#include "strategies/planner/memory_limited.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "test/strategies/planner/variants.hpp"

#include <gtest/gtest.h>

#include <optional>

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

}  // namespace
}  // namespace partita::test::memory_limited_test
