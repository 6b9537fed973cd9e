// stages = N: the boundaries against all cuts, within memory, in files, and under every schedule.
#include "partita/strategies/balance.hpp"
#include "partita/model/builtin.hpp"
#include "partita/strategies/generators.hpp"

#include "priced.hpp"
#include "support/error_of.hpp"

#include <functional>
#include <random>

using namespace partita;
using namespace partita::test;

namespace {

Workload of_batch(Index batch) { return {.batch = batch, .dtype = DType::f32, .training = true, .optimizer = {}}; }

/// Linear layers of any widths, with an output that is read again further down here and there.
Model drawn_chain(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<Index>(random() % n); };
  Model m("chain");
  std::vector<Value> t{m.input("in", {.channels = 8, .spatial = {}})};
  const Index layers = 2 + below(7);
  for (Index i = 0; i < layers; ++i) {
    const std::string name = fmt::format("l{}", i);
    const auto earlier = static_cast<std::size_t>(below(t.size()));
    if (i % 3 == 2)
      t.push_back(m.concatenate(name, {t.back(), t[earlier]}));
    else
      t.push_back(m.linear(name, t.back(), {.features = 1 + below(60)}));
  }
  m.mean_squared_error("loss", t.back());
  return m;
}

/// What balanced() minimizes, worked out from the prices of single layers.
class Objective {
 public:
  Objective(const Model& model, Index batch, const Machine& machine)
      : plan_(bind(model, Strategy(), of_batch(batch))),
        cost_(estimate(plan_, machine)),
        outer_(machine.levels.back()) {}

  int layers() const { return static_cast<int>(plan_.layers.size()); }
  /// The slowest group's seconds, then all that crosses.
  std::pair<double, double> operator()(const std::vector<int>& ends) const {
    double slowest = 0, all = 0;
    int first = 0;
    for (const int end : ends) {
      double seconds = 2 * (1 - outer_.overlap.value) * (crossing(first) + crossing(end));
      for (int i = first; i < end; ++i) {
        const LayerCost& cost = cost_.layers[static_cast<std::size_t>(i)];
        seconds += cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total();
      }
      slowest = std::max(slowest, seconds);
      all += crossing(end);
      first = end;
    }
    return {slowest, all};
  }
  /// Weights with their gradients and state, and what so many microbatches keep.
  Index bytes(int first, int end, Index microbatches) const {
    Index sum = 0;
    for (int i = first; i < end; ++i) {
      const MemoryUse use = plan_.memory(i, 0);
      sum += use[MemoryClass::weights] + use[MemoryClass::gradients] + use[MemoryClass::optimizer] +
             microbatches * (use[MemoryClass::activations] + use[MemoryClass::halos]);
    }
    return sum;
  }

 private:
  double crossing(int cut) const {
    double bytes = 0;
    for (int i = 0; i < cut; ++i) {
      bool read = false;
      for (int j = cut; j < layers(); ++j)
        for (const int input : plan_.layers[static_cast<std::size_t>(j)].inputs) read = read || input == i;
      if (read) bytes += 4 * static_cast<double>(plan_.layers[static_cast<std::size_t>(i)].shape.volume());
    }
    return bytes == 0 ? 0 : outer_.latency.value + bytes / outer_.bandwidth.value;
  }

  Plan plan_;
  Cost cost_;
  Level outer_;
};

/// Calls f(ends) for every way to cut layers into groups.
void for_cuts(int layers, int groups, const std::function<void(const std::vector<int>&)>& f,
              std::vector<int> ends = {}) {
  const int begun = ends.empty() ? 0 : ends.back(), left = groups - static_cast<int>(ends.size());
  if (left == 1) {
    ends.push_back(layers);
    return f(ends);
  }
  for (int end = begun + 1; end <= layers - left + 1; ++end) {
    auto more = ends;
    more.push_back(end);
    for_cuts(layers, groups, f, more);
  }
}

std::vector<int> ends_of(const Model& model, const Strategy& strategy) {
  std::vector<int> ends;
  for (const auto& stage : strategy.stages()) ends.push_back(model.find(stage.last) + 1);
  return ends;
}

Strategy in_stages(int stages, const std::string& kind, int microbatches) {
  Strategy strategy;
  return strategy.stages(stages).schedule(kind, microbatches);
}

}  // namespace

TEST(Balance, FindsTheBestOfAllCuts) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const int stages : {2, 3, 4})
      for (const double overlap : {0., 1.}) {
        const Model model = drawn_chain(seed);
        const Machine machine = round_machine(overlap);
        const Objective objective(model, 6, machine);
        std::pair<double, double> best{1e9, 0};
        for_cuts(objective.layers(), stages, [&](const auto& ends) { best = std::min(best, objective(ends)); });
        const Strategy strategy = balanced(model, in_stages(stages, "1f1b", 2), of_batch(12), machine, {});
        ASSERT_EQ(static_cast<int>(strategy.stages().size()), stages);
        const auto found = objective(ends_of(model, strategy));
        expect_seconds(found.first, best.first, fmt::format("seed {}, {}", seed, strategy.print()));
        EXPECT_LE(found.second, best.second + 1e-12) << "seed " << seed << "\n" << strategy.print();
      }
}

TEST(Balance, FitsTheMemory) {
  int moved = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Model model = drawn_chain(seed);
    const Objective objective(model, 6, round_machine(1));
    const Strategy asked = in_stages(3, "1f1b", 2);
    const std::array<Index, 3> held{2, 2, 1};  // microbatches under way
    const auto most = [&](const std::vector<int>& ends) {
      Index bytes = 0;
      for (std::size_t g = 0; g < 3; ++g)
        bytes = std::max(bytes, objective.bytes(g == 0 ? 0 : ends[g - 1], ends[g], held[g]));
      return bytes;
    };
    const auto free = ends_of(model, balanced(model, asked, of_batch(12), round_machine(1), {}));
    Index least = most(free);
    for_cuts(objective.layers(), 3, [&](const auto& ends) { least = std::min(least, most(ends)); });
    for (const Index limit : {most(free), most(free) - 1, least, least - 1}) {
      double best = 1e9;
      for_cuts(objective.layers(), 3, [&](const auto& ends) {
        if (most(ends) <= limit) best = std::min(best, objective(ends).first);
      });
      Strategy strategy;
      const auto error =
          error_of([&] { strategy = balanced(model, asked, of_batch(12), round_machine(1), {}, limit); });
      ASSERT_EQ(error.empty(), best < 1e9) << "seed " << seed << ": " << error;
      refused += error.empty() ? 0 : 1;
      if (!error.empty()) continue;
      const auto ends = ends_of(model, strategy);
      EXPECT_LE(most(ends), limit) << seed;
      expect_seconds(objective(ends).first, best, fmt::format("seed {}, limit {}", seed, limit));
      moved += ends == free ? 0 : 1;
    }
  }
  EXPECT_GT(moved, 20) << "a limit that binds moves boundaries";
  EXPECT_GE(refused, 60);
}

TEST(Balance, SaysWhatDoesNotFit) {
  const Model model = two_convolutions();
  expect_error(
      [&] { static_cast<void>(balanced(model, in_stages(2, "1f1b", 2), of_batch(4), round_machine(), {}, 100)); },
      {"no way to cut the model 'two' into 2 stages fits 100 B a rank", "more stages", "recompute = true"});
  EXPECT_EQ(error_of([&] { bind(model, in_stages(5, "1f1b", 2), of_batch(4)); }),
            "the model 'two' has 4 layers, too few for 5 stages of 1 group of layers each");
  EXPECT_EQ(error_of([&] { bind(model, in_stages(3, "zb-v", 2), of_batch(4)); }),
            "the model 'two' has 4 layers, too few for 3 stages of 2 groups of layers each");
}

TEST(Balance, WhatASchedulesKeepsCounts) {
  const Model model = builtin_model("lenet5", {});
  const auto fits = [&](const std::string& kind, Index limit) {
    return error_of([&] {
             static_cast<void>(balanced(model, in_stages(2, kind, 16), of_batch(64), round_machine(), {}, limit));
           })
        .empty();
  };
  const auto least = [&](const std::string& kind) {
    Index limit = 1 << 10;
    while (!fits(kind, limit)) limit += limit / 16;
    return static_cast<double>(limit);
  };
  EXPECT_GT(least("gpipe"), 1.5 * least("1f1b")) << "16 microbatches under way, not 2";
  EXPECT_GE(least("zb-h2"), least("zb-h1"));
  // With a rank's peak as the limit or a little more, what is placed holds no more.
  for (const std::string kind : {"gpipe", "1f1b", "zb-h2", "chimera", "zb-v", "interleaved"}) {
    const auto limit = static_cast<Index>(least(kind));
    const Plan plan =
        bind(model, balanced(model, in_stages(2, kind, 16), of_batch(64), round_machine(), {}, limit), of_batch(64));
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const MemoryUse each = plan.peak(rank).each;
      EXPECT_LE(each[MemoryClass::weights] + each[MemoryClass::gradients] + each[MemoryClass::optimizer], limit)
          << kind;
      EXPECT_LE(static_cast<double>(each[MemoryClass::activations]), 1.1 * static_cast<double>(limit))
          << kind << ", a batch of images, and gradients of activations beside what is kept";
    }
  }
}

TEST(Balance, EveryScheduleTakesStages) {
  const Model model = builtin_model("lenet5", {});
  for (const auto& kind : schedule_kinds()) {
    const Plan plan = bind(model, in_stages(2, kind.name, 4), of_batch(8));
    EXPECT_EQ(plan.grids.size(), 2U) << kind.name;
    EXPECT_EQ(plan.places.size(), 2U * static_cast<std::size_t>(kind.groups_per_stage)) << kind.name;
    const Cost cost = estimate(plan, round_machine());
    EXPECT_NEAR(cost.parts.total(), cost.seconds, 1e-9 * cost.seconds) << kind.name;
  }
  Strategy four;
  four.stages(2).schedule("interleaved", 4, 4);
  EXPECT_EQ(bind(model, four, of_batch(8)).places, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(Balance, StagesTakeConsecutiveRanks) {
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"}).stages(3).schedule("1f1b", 4);
  EXPECT_EQ(strategy.ranks(), 6);
  const Plan plan = bind(builtin_model("lenet5", {}), strategy, of_batch(8));
  ASSERT_EQ(plan.grids.size(), 3U);
  for (int stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(plan.grids[static_cast<std::size_t>(stage)].first_rank(), 2 * stage);
    EXPECT_EQ(plan.grids[static_cast<std::size_t>(stage)].print(), "data=2");
  }
}

TEST(Balance, OneStageIsTheStrategyItself) {
  const Strategy strategy = all_as("data=2", "N@data");
  EXPECT_EQ(balanced(two_convolutions(), strategy, of_batch(4), round_machine(), {}).print(), strategy.print());
}

TEST(Balance, ASmallerBatchKeepsTheBoundaries) {
  const Model model = builtin_model("lenet5", {});
  const Strategy strategy = in_stages(3, "1f1b", 4);
  const Plan plan = bind(model, strategy, of_batch(64));
  const Strategy same = settled(strategy, plan);
  EXPECT_EQ(same.stages().size(), 3U);
  for (const Index batch : {64, 5, 1}) {
    const Plan other = bind(model, same, of_batch(batch));
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      EXPECT_EQ(other.layers[i].group, plan.layers[i].group) << batch << " " << plan.layers[i].name;
  }
  Strategy folded;
  folded.stages(2).schedule("zb-v", 4);
  const Plan v = bind(model, folded, of_batch(8));
  EXPECT_EQ(bind(model, settled(folded, v), of_batch(8)).hash(), v.hash());
}

TEST(Balance, InStrategyFiles) {
  const auto parsed = [](const std::string& text) { return Strategy::parse(text, "s.toml"); };
  const Strategy strategy = parsed("grid = \"data=2\"\nstages = 4\n[schedule]\nkind = \"zb-h1\"\nmicrobatches = 8\n");
  EXPECT_EQ(strategy.stage_count(), 4);
  EXPECT_EQ(strategy.ranks(), 8);
  EXPECT_EQ(parsed(strategy.print()).print(), strategy.print());
  EXPECT_NE(strategy.print().find("stages = 4\n"), std::string::npos);
  EXPECT_EQ(parsed("stages = 1").print(), Strategy().print());
  const auto refusal = [&](const std::string& text) { return error_of([&] { parsed(text); }); };
  for (const char* value : {"0", "-1", "\"two\"", "2.5", "65537", "[2]", "true"})
    EXPECT_EQ(refusal(fmt::format("stages = {}", value)),
              "s.toml, line 1, column 10: 'stages' must be a whole number, 1 to 65536");
  EXPECT_EQ(refusal("stages = 2\n[[stage]]\nlayers = [\"a\", \"b\"]\n"),
            "s.toml, line 1, column 10: 'stages' places the stages itself; leave it or [[stage]] out");
  Strategy both;
  both.stages(2);
  EXPECT_EQ(error_of([&] {
              both.stage({"a", "b"});
            }),
            "2 stages are asked for, but stages are named too; say one of both");
  EXPECT_EQ(error_of([] {
              Strategy().stage({"a", "b"}).stages(2);
            }),
            "2 stages are asked for, but stages are named too; say one of both");
  EXPECT_EQ(error_of([] { Strategy().stages(0); }), "0 stages; there must be 1 to 65536");
}
