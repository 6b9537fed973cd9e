// stages = N: compares the boundaries with all partitions, within a memory limit, in files, and under every schedule.
#include "partita/strategies/planner/stage_partition.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/schedule/generators.hpp"

#include "strategies/planner/stage_search.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/placed.hpp"

#include <functional>
#include <random>

namespace partita::test::stage_partition_test {

namespace {

Workload of_batch(Index batch) { return {.batch = batch, .dtype = DType::f32, .training = true, .optimizer = {}}; }

/// A chain of linear layers of any widths, in which some outputs are also read by later layers.
Model drawn_chain(std::uint64_t seed, std::uint64_t most = 7, std::uint64_t width = 60) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<Index>(random() % n); };
  Model m("chain");
  std::vector<Value> t{m.input("in", {.channels = 8, .spatial = {}})};
  const Index layers = 2 + below(most);
  for (Index i = 0; i < layers; ++i) {
    const std::string name = fmt::format("l{}", i);
    const auto earlier = static_cast<std::size_t>(below(t.size()));
    if (i % 3 == 2)
      t.push_back(m.concatenate(name, {t.back(), t[earlier]}));
    else
      t.push_back(m.linear(name, t.back(), {.features = 1 + below(width)}));
  }
  m.mean_squared_error("loss", t.back());
  return m;
}

/// Calls f(ends) for every partition of the layers into groups.
void for_partitions(int layers, int groups, const std::function<void(const std::vector<int>&)>& f,
                    std::vector<int> ends = {}) {
  const int begun = ends.empty() ? 0 : ends.back(), left = groups - static_cast<int>(ends.size());
  if (left == 1) {
    ends.push_back(layers);
    return f(ends);
  }
  for (int end = begun + 1; end <= layers - left + 1; ++end) {
    auto more = ends;
    more.push_back(end);
    for_partitions(layers, groups, f, more);
  }
}

Strategy with_stages(const Model& model, Strategy strategy, const std::vector<int>& ends) {
  strategy.stages(1);
  int first = 0;
  for (const int end : ends) {
    strategy.group({model.layers()[first].name, model.layers()[static_cast<std::size_t>(end) - 1].name});
    first = end;
  }
  return strategy;
}

/// The cost estimate of the bound plan, as `compare` prints it.
double seconds(const Model& model, const Strategy& strategy, Index batch, const Machine& machine) {
  return estimate(bind(model, strategy, of_batch(batch)), machine).seconds;
}

std::vector<int> ends_of(const Model& model, const Strategy& strategy) {
  std::vector<int> ends;
  for (const auto& stage : strategy.groups()) ends.push_back(model.find(stage.last) + 1);
  return ends;
}

template <class Kind>
Strategy in_stages(int stages, const Kind& kind, int microbatches) {
  Strategy strategy;
  return strategy.stages(stages).schedule(kind, microbatches);
}

}  // namespace

// Costs that are not estimated per partition (sums of losses, padding of buckets) take less than a hundredth of a step
// here.
TEST(StagePartition, FindsTheBestOfAllPartitions) {
  for (const ScheduleKind kind : pipeline_kinds())
    for (std::uint64_t seed = 0; seed < cases(16); ++seed)
      for (const int stages : {2, 3, 4}) {
        const Model model = drawn_chain(seed, 7, 600);
        const Machine machine = round_machine(seed % 2 == 0 ? 0 : 0.75);
        const Strategy asked = in_stages(stages, kind, 4);
        const int groups = stages * default_groups_per_stage(kind), layers = static_cast<int>(model.layers().size());
        if (groups > layers || (name(kind) == "chimera" && stages == 3)) continue;
        double best = 1e9;
        for_partitions(layers, groups, [&](const auto& ends) {
          best = std::min(best, seconds(model, with_stages(model, asked, ends), 12, machine));
        });
        const Strategy strategy = place_stages(model, asked, of_batch(12), machine, {});
        ASSERT_EQ(static_cast<int>(strategy.groups().size()), groups);
        EXPECT_LE(seconds(model, strategy, 12, machine), 1.01 * best) << "seed " << seed << ", " << strategy.print();
      }
}

// fashion-cnn in a V: balanced groups would give one stage 1.2 times as much work.
TEST(StagePartition, AStageIsTheSumOfItsGroups) {
  const Model model = builtin_model("fashion-cnn", {});
  for (const std::string kind : {"zb-v", "v-half", "dualpipe-v", "interleaved", "chimera", "1f1b"}) {
    const Strategy asked = in_stages(2, kind, 8);
    double best = 1e9;
    for_partitions(static_cast<int>(model.layers().size()), static_cast<int>(asked.stages_of_groups().size()),
                   [&](const auto& ends) {
                     best = std::min(best, seconds(model, with_stages(model, asked, ends), 128, default_machine()));
                   });
    const Strategy strategy = place_stages(model, asked, of_batch(128), default_machine(), {});
    expect_seconds(seconds(model, strategy, 128, default_machine()), best, strategy.print());
  }
}

ScheduleRequest request_of(const Strategy& strategy) {
  ScheduleRequest request;
  request.kind = strategy.schedule();
  request.stages = strategy.stage_count();
  request.microbatches = strategy.microbatches();
  request.filter_memory = kept_until_backward_filter;
  return request;
}

/// Nodes of four ranks that share two links, below a network with half of the links' bandwidth; and a machine with
/// measured exchanges.
std::vector<Machine> busy_networks() {
  Machine shared = clustered_machine(4, 2);
  shared.levels[1].bandwidth = {1e7, ""};
  shared.levels[1].fan_out = {2, ""};
  Machine measured = shared;
  measured.levels[1].verbs[{Verb::exchange, 2}] = {{{100, 100 * us}, {1e4, 5000 * us}, {1e5, 20000 * us}}, ""};
  return {shared, measured};
}

Strategy on_nodes(int stages) {
  Strategy strategy = all_as("data=4", "N@data");
  return strategy.stages(stages).schedule("1f1b", 4);
}

// All ranks of a node send at once. A chain transfers one output at a stage boundary, whose time estimate() computes as
// well.
TEST(StagePartition, ABoundaryCostsWhatEstimateSays) {
  Model model("chain");
  auto t = model.input("in", {.channels = 8, .spatial = {}});
  for (const Index width : {64, 500, 20, 300}) t = model.linear(fmt::format("l{}", width), t, {.features = width});
  model.mean_squared_error("loss", t);
  const auto layers = static_cast<int>(model.layers().size());
  const Plan alone = bind(model, all_as("data=4", "N@data"), of_batch(12));
  for (const Machine& machine : busy_networks()) {
    ScheduleCache made;
    const KernelTimes none;
    PlanPricer pricer(machine, none);
    const StagePartitionCost price(alone, pricer, request_of(on_nodes(2)), made);
    for (int cut = 1; cut < layers; ++cut) {
      const Strategy strategy = with_stages(model, on_nodes(2), {cut, layers});
      const Cost cost = estimate(bind(model, strategy, of_batch(48)), machine);
      expect_seconds(price.boundary_seconds(cut), cost.transfers[0], fmt::format("before layer {}", cut));
    }
  }
}

// Sums of losses over such a network take more of a step than over others.
TEST(StagePartition, FindsTheBestPartitionBetweenNodes) {
  for (const Machine& machine : busy_networks())
    for (std::uint64_t seed = 0; seed < cases(8); ++seed)
      for (const int stages : {2, 3}) {
        const Model model = drawn_chain(seed, 7, 600);
        const auto layers = static_cast<int>(model.layers().size());
        if (stages > layers) continue;
        double best = 1e9;
        for_partitions(layers, stages, [&](const auto& ends) {
          best = std::min(best, seconds(model, with_stages(model, on_nodes(stages), ends), 48, machine));
        });
        const Strategy strategy = place_stages(model, on_nodes(stages), of_batch(48), machine, {});
        EXPECT_LE(seconds(model, strategy, 48, machine), 1.02 * best) << "seed " << seed << ", " << strategy.print();
      }
}

TEST(StagePartition, FitsTheMemory) {
  for (const auto& [kind, count] : {std::pair("1f1b", 3), std::pair("zb-v", 2), std::pair("chimera", 2)}) {
    const int stages = count;
    const Strategy asked = in_stages(stages, kind, 4);
    const auto groups = asked.stages_of_groups().size();
    int moved = 0, refused = 0, missed = 0, slower = 0;
    const auto count_of_seeds = static_cast<int>(cases(40));
    for (int seed = 0; seed < count_of_seeds; ++seed) {
      const Model model = drawn_chain(static_cast<std::uint64_t>(seed), 7, 600);
      const auto layers = static_cast<int>(model.layers().size());
      if (layers < static_cast<int>(groups)) continue;
      const auto most = [&](const std::vector<int>& ends) {
        return estimate(bind(model, with_stages(model, asked, ends), of_batch(12)), round_machine(1)).memory.total;
      };
      const auto free = ends_of(model, place_stages(model, asked, of_batch(12), round_machine(1), {}));
      Index least = most(free);
      for_partitions(layers, static_cast<int>(groups), [&](const auto& ends) { least = std::min(least, most(ends)); });
      // closer to the minimum, the search may find no partition, since it counts memory approximately
      const Index enough = least + least / 20;
      for (const Index limit : {most(free), most(free) - 1, enough, least, least - 1}) {
        double best = 1e9;
        for_partitions(layers, static_cast<int>(groups), [&](const auto& ends) {
          if (most(ends) <= limit)
            best = std::min(best, seconds(model, with_stages(model, asked, ends), 12, round_machine(1)));
        });
        Strategy strategy;
        const auto error =
            error_of([&] { strategy = place_stages(model, asked, of_batch(12), round_machine(1), {}, limit); });
        refused += error.empty() ? 0 : 1;
        missed += !error.empty() && best < 1e9 ? 1 : 0;
        if (limit >= enough || limit == most(free)) {
          ASSERT_EQ(error, "") << "seed " << seed;
        }
        if (!error.empty()) continue;
        const auto ends = ends_of(model, strategy);
        EXPECT_LE(most(ends), limit) << seed;
        slower += seconds(model, strategy, 12, round_machine(1)) > 1.01 * best ? 1 : 0;
        moved += ends == free ? 0 : 1;
      }
    }
    if (asked.schedule() != ScheduleKind::chimera) {
      EXPECT_GT(8 * moved, count_of_seeds) << kind << ": a limit that binds moves boundaries";
    }
    EXPECT_GE(4 * refused, 3 * count_of_seeds) << kind;
    EXPECT_LE(missed, count_of_seeds) << kind << ", of about two limits a seed that some partition fits";
    EXPECT_LE(slower, 2) << kind;
  }
}

// The search for models with too many partitions to compare, checked where there are few.
TEST(StagePartition, MovingBoundariesFindsTheBestPartition) {
  int all = 0, missed = 0, gained = 0;
  for (const ScheduleKind kind : pipeline_kinds())
    for (std::uint64_t seed = 0; seed < cases(4); ++seed)
      for (const int stages : {2, 4}) {
        const Model model = drawn_chain(seed, 12);
        const int groups = stages * default_groups_per_stage(kind);
        if (groups > static_cast<int>(model.layers().size())) continue;
        const Plan plan = bind(model, Strategy(), of_batch(3));
        ScheduleCache made;
        const Machine machine = round_machine(0.5);
        const KernelTimes none;
        PlanPricer pricer(machine, none);
        StagePartitionCost price(plan, pricer, request_of(in_stages(stages, kind, 8)), made);
        const double best = price.makespan(search_partition(price, 0).ends),
                     found = price.makespan(search_partition(price, 0, 0).ends);
        EXPECT_LE(found, 1.04 * best) << name(kind) << ", " << stages << " stages, seed " << seed;
        double slowest = 1e9, even = 0;  // of the partition whose slowest group is fastest
        for_partitions(price.pieces(), groups, [&](const auto& ends) {
          double most = 0;
          for (std::size_t g = 0; g < ends.size(); ++g)
            most = std::max(most, price.seconds(g == 0 ? 0 : ends[g - 1], ends[g]));
          if (most < slowest) even = price.makespan(ends);
          slowest = std::min(slowest, most);
        });
        all += 1;
        missed += found > best * (1 + 1e-6) ? 1 : 0;
        gained += found < even * (1 - 1e-6) ? 1 : 0;
      }
  EXPECT_LE(missed, 1 + all / 100);
  EXPECT_GT(3 * gained, all) << "gains over even groups";
}

// A transformer of so many blocks has more layers than are tried one by one.
TEST(StagePartition, CutsLongModelsWhereLittleCrosses) {
  const Model model =
      builtin_model("gpt", {.transformer = {.layers = 30, .hidden = 16, .heads = 2, .sequence = 8, .vocabulary = 32}});
  const auto layers = static_cast<int>(model.layers().size());
  ASSERT_GT(layers, 256);
  const auto after = [&](int block) { return model.find(fmt::format("block{}_add2", block)) + 1; };
  for (const std::string kind : {"1f1b", "interleaved", "zb-v"}) {
    const Strategy asked = in_stages(3, kind, 6);
    const Strategy strategy = place_stages(model, asked, of_batch(12), default_machine(), {});
    std::vector<int> ends = ends_of(model, strategy), blocks;
    for (std::size_t g = 0; g + 1 < ends.size(); ++g) {
      EXPECT_TRUE(model.layers()[static_cast<std::size_t>(ends[g]) - 1].name.find("_add") != std::string::npos)
          << kind << ": " << strategy.print();
      blocks.push_back(after(30 / static_cast<int>(ends.size()) * (static_cast<int>(g) + 1)));
    }
    blocks.push_back(layers);
    EXPECT_LE(seconds(model, strategy, 12, default_machine()),
              1.001 * seconds(model, with_stages(model, asked, blocks), 12, default_machine()))
        << kind << ": equal numbers of blocks are faster than " << strategy.print();
  }
}

TEST(StagePartition, SaysWhatDoesNotFit) {
  const Model model = two_convolutions();
  expect_error(
      [&] { static_cast<void>(place_stages(model, in_stages(2, "1f1b", 2), of_batch(4), round_machine(), {}, 100)); },
      {"no partition of the model 'two' into 2 stages was found that fits 100 B per rank", "more stages",
       "recompute = true"});
  EXPECT_EQ(error_of([&] { test::bind_placed(model, in_stages(5, "1f1b", 2), of_batch(4)); }),
            "the model 'two' has 4 layers, too few for 5 stages of 1 group of layers each");
  EXPECT_EQ(error_of([&] { test::bind_placed(model, in_stages(3, "zb-v", 2), of_batch(4)); }),
            "the model 'two' has 4 layers, too few for 3 stages of 2 groups of layers each");
}

TEST(StagePartition, WhatASchedulesKeepsCounts) {
  const Model model = builtin_model("lenet5", {});
  const auto fits = [&](const std::string& kind, Index limit) {
    return error_of([&] {
             static_cast<void>(place_stages(model, in_stages(2, kind, 16), of_batch(64), round_machine(), {}, limit));
           })
        .empty();
  };
  const auto least = [&](const std::string& kind) {
    Index limit = 1 << 10;
    while (!fits(kind, limit)) limit += limit / 16;
    return static_cast<double>(limit);
  };
  EXPECT_GT(least("gpipe"), 1.5 * least("1f1b")) << "16 microbatches in flight, not 2";
  EXPECT_GE(least("zb-h2"), least("zb-h1"));
  // With a rank's peak as the limit, or a little more, the chosen stages hold no more than it.
  for (const std::string kind : {"gpipe", "1f1b", "zb-h2", "chimera", "zb-v", "interleaved"}) {
    const auto limit = static_cast<Index>(least(kind));
    const Plan plan = bind(model, place_stages(model, in_stages(2, kind, 16), of_batch(64), round_machine(), {}, limit),
                           of_batch(64));
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const MemoryUse each = peak_memory(plan, rank).each;
      EXPECT_LE(each[MemoryClass::weights] + each[MemoryClass::gradients] + each[MemoryClass::optimizer], limit)
          << kind;
      EXPECT_LE(static_cast<double>(each[MemoryClass::activations]), 1.1 * static_cast<double>(limit))
          << kind << ", counts a batch of images and gradients of activations as well";
    }
  }
}

TEST(StagePartition, EveryScheduleTakesStages) {
  const Model model = builtin_model("lenet5", {});
  for (const ScheduleKind kind : pipeline_kinds()) {
    const Plan plan = test::bind_placed(model, in_stages(2, kind, 4), of_batch(8));
    EXPECT_EQ(plan.grids.size(), 2U) << name(kind);
    EXPECT_EQ(plan.stage_of_group.size(), 2U * static_cast<std::size_t>(default_groups_per_stage(kind))) << name(kind);
    const Cost cost = estimate(plan, round_machine());
    EXPECT_NEAR(cost.parts.total(), cost.seconds, 1e-9 * cost.seconds) << name(kind);
  }
  Strategy four;
  four.stages(2).schedule("interleaved", 4, 4);
  EXPECT_EQ(test::bind_placed(model, four, of_batch(8)).stage_of_group, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(StagePartition, StagesTakeConsecutiveRanks) {
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"}).stages(3).schedule("1f1b", 4);
  EXPECT_EQ(strategy.ranks(), 6);
  const Plan plan = test::bind_placed(builtin_model("lenet5", {}), strategy, of_batch(8));
  ASSERT_EQ(plan.grids.size(), 3U);
  for (int stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(plan.grids[stage].first_rank(), 2 * stage);
    EXPECT_EQ(plan.grids[stage].print(), "data=2");
  }
}

TEST(StagePartition, OneStageIsTheStrategyItself) {
  const Strategy strategy = all_as("data=2", "N@data");
  EXPECT_EQ(place_stages(two_convolutions(), strategy, of_batch(4), round_machine(), {}).print(), strategy.print());
}

TEST(StagePartition, ASmallerBatchKeepsTheBoundaries) {
  const Model model = builtin_model("lenet5", {});
  const Strategy strategy = test::placed(model, in_stages(3, "1f1b", 4), of_batch(64));
  const Plan plan = bind(model, strategy, of_batch(64));
  const Strategy same = pin_weight_layouts(strategy, plan);
  EXPECT_EQ(same.groups().size(), 3U);
  for (const Index batch : {64, 5, 1}) {
    const Plan other = bind(model, same, of_batch(batch));
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      EXPECT_EQ(other.layers[i].group, plan.layers[i].group) << batch << " " << plan.layers[i].name;
  }
  Strategy folded;
  folded.stages(2).schedule("zb-v", 4);
  folded = test::placed(model, folded, of_batch(8));
  const Plan v = bind(model, folded, of_batch(8));
  EXPECT_EQ(bind(model, pin_weight_layouts(folded, v), of_batch(8)).hash(), v.hash());
}

TEST(StagePartition, InStrategyFiles) {
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
  EXPECT_EQ(refusal("stages = 2\n[[group]]\nlayers = [\"a\", \"b\"]\n"),
            "s.toml, line 1, column 10: 'stages' chooses the groups automatically; remove it or [[group]]");
  Strategy both;
  both.stages(2);
  EXPECT_EQ(error_of([&] {
              both.group({"a", "b"});
            }),
            "2 stages are requested, but groups are named too; give one of the two");
  EXPECT_EQ(error_of([] {
              Strategy().group({"a", "b"}).stages(2);
            }),
            "2 stages are requested, but groups are named too; give one of the two");
  EXPECT_EQ(error_of([] { Strategy().stages(0); }), "the number of stages is 0; it must be 1 to 65536");
}

}  // namespace partita::test::stage_partition_test
