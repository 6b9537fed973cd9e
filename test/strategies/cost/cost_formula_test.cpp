// A cost formula that is built once gives the same price as a new estimate on every machine with the same levels. It
// also agrees with PlainPrice, which prices every rank and every item of traffic separately.
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/local_work.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "test/strategies/cost/plain_price.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/random_case.hpp"
#include "test/support/source_folder.hpp"

#include <filesystem>
#include <random>

namespace partita::test::cost_formula_test {

namespace {

namespace fs = std::filesystem;

fs::path examples() { return source_folder() / "examples"; }

/// Returns the example machines and four more, with one to three levels.
std::vector<Machine> machines() {
  std::vector<Machine> all{round_machine(0.5), clustered_machine(2, 1), clustered_machine(3, 2),
                           machine_of_racks(2, 2, 1)};
  for (const auto& entry : fs::directory_iterator(examples() / "machines"))
    all.push_back(Machine::load(entry.path().string()));
  return all;
}

/// Returns a machine with the same levels and everything else changed: the constants differ, and curves are added where
/// there were none and removed where there were some.
Machine changed(Machine machine) {
  double factor = 1.37;
  for (Constant* constant : {&machine.memory_bandwidth, &machine.arithmetic, &machine.kernel})
    constant->value *= (factor += 0.31);
  const bool curves = machine.efficiency.empty();
  machine.efficiency.clear();
  if (curves)
    machine.efficiency = {{KernelKind::conv, {{{{1e3, 0.01}, {1e5, 0.9}}, ""}, {3, ""}, {}}},
                          {KernelKind::product, {{{{1e2, 0.1}, {1e4, 0.7}}, ""}, {5, ""}, {}}},
                          {KernelKind::others, {{{{1, 0.2}}, ""}}}};
  for (Level& level : machine.levels) {
    for (Constant* constant : {&level.latency, &level.bandwidth}) constant->value *= (factor += 0.23);
    level.links.value += 1;
    level.fan_out.value += 0.5;
    level.overlap.value = 0.9 - level.overlap.value;
    if (!level.verbs.empty())
      level.verbs.clear();
    else  // measured times need not grow with the bytes
      for (const auto& [verb, ranks] : {std::pair(Verb::exchange, 2), {Verb::all_reduce, 2}, {Verb::all_reduce, 4}})
        level.verbs[{verb, ranks}] = {{{64, 9 * us}, {128, 7 * us}, {4096, 20 * us}}, ""};
  }
  return machine;
}

bool holds(const Machine& machine, const Plan& plan) {
  return machine.levels.back().ranks.value == 0 || machine.levels.back().ranks.value >= plan.ranks();
}

struct Case {
  std::string name;
  Plan plan;
};

std::vector<Case> named_cases() {
  const auto loaded = [](const std::string& file) {
    return Strategy::load((examples() / "strategies" / (file + ".toml")).string());
  };
  const Model volumes = builtin_model("unet3d", {.extent = 8, .width = 0.07}),
              matrices = builtin_model("mlp", {.extent = 5, .classes = 7, .widths = {13, 11}}),
              residual = builtin_model("resnet50", {.extent = 67, .classes = 5, .width = 0.03});
  Strategy unequal = all_as("data=2 y=2", "N@data H@y"), chimera, distributed = all_as("data=3", "N@data");
  Strategy over_nodes = all_as("y=3", "H@y");
  unequal.group({"in", "a"}).group({"b", "loss"}).schedule("1f1b", 3);
  chimera.group({"in", "a"}).group({"b", "loss"}).schedule("chimera", 4);
  over_nodes.group({"in", "a"}).group({"b", "loss"}).schedule("chimera", 2);
  distributed.optimizer_state(Strategy::OptimizerState::sharded);
  return {{"residual network", bound(residual, all_as("data=4 y=2", "N@data H@y"), 8)},
          {"residual network, uneven", bound(residual, all_as("data=3 y=2 x=2", "N@data H@y W@x"), 7)},
          {"distributed update", bound(residual, distributed, 7)},
          {"volumes", bound(volumes, loaded("unet3d-spatial"), 2)},
          {"volumes in a pipeline", bound(volumes, loaded("unet3d-pipeline"), 5)},
          {"matrices", bound(matrices, loaded("mlp-2.5d"), 6)},
          {"panels", bound(matrices, loaded("mlp-summa"), 6)},
          {"microbatches of two sizes", bound(two_convolutions(), unequal, 8)},
          {"both ways", bound(two_convolutions(), chimera, 6)},
          {"both ways over uneven nodes", bound(two_convolutions(), over_nodes, 2)},
          {"evaluation", bound(residual, all_as("data=4 y=2", "N@data H@y"), 8, false)}};
}

void expect_same(const PassCost& a, const PassCost& b) {
  for (const double PassCost::*part : {&PassCost::compute, &PassCost::halo, &PassCost::redistribution,
                                       &PassCost::product, &PassCost::collective, &PassCost::hidden})
    EXPECT_EQ(a.*part, b.*part);
}

void expect_same(const CostParts& a, const CostParts& b) {
  expect_same(a.passes, b.passes);
  for (const double CostParts::*part :
       {&CostParts::transfers, &CostParts::grad_reduce, &CostParts::update, &CostParts::bubble})
    EXPECT_EQ(a.*part, b.*part);
}

void expect_same(const Cost& a, const Cost& b) {
  EXPECT_EQ(a.seconds, b.seconds);
  expect_same(a.parts, b.parts);
  EXPECT_EQ(a.transfers, b.transfers);
  EXPECT_EQ(a.simulation.busy, b.simulation.busy);
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.traffic, b.traffic);
  EXPECT_EQ(a.memory.total, b.memory.total);
  EXPECT_EQ(a.samples_per_second, b.samples_per_second);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    for (const PassCost LayerCost::*pass :
         {&LayerCost::forward, &LayerCost::backward_data, &LayerCost::backward_filter})
      expect_same(a.layers[i].*pass, b.layers[i].*pass);
    EXPECT_EQ(a.layers[i].grad_reduce, b.layers[i].grad_reduce);
    EXPECT_EQ(a.layers[i].inputs, b.layers[i].inputs);
    EXPECT_EQ(a.layers[i].rank, b.layers[i].rank);
  }
}

/// Compares each layer with the plain price if all microbatches have one size. Compares memory and traffic with the
/// maximum over all representatives.
void expect_plain(const Plan& plan, const Machine& machine, const std::string& what) {
  const Cost cost = estimate(plan, machine);
  const PlainPrice plain(plan, machine);
  for (int replica = 0; replica < plan.replicas() && plan.remainder_layers.empty(); ++replica)
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      const LayerCost& layer = (replica == 0 ? cost.layers : cost.second_layers)[i];
      expect_seconds(layer.forward.total() + layer.backward_data.total() + layer.backward_filter.total(),
                     plain.layer(static_cast<int>(i), replica), what + ": " + plan.layers[i].name);
      if (plan.workload.training)
        expect_seconds(layer.grad_reduce, plain.sums(static_cast<int>(i)), what + ": sums of " + plan.layers[i].name);
    }
  if (plan.workload.training && plan.stage_of_group.size() == 1)
    expect_seconds(cost.parts.update, plain.after_sums(), what + ": update");
  MemoryPeak memory;
  Index bytes = 0;
  double sent = 0;
  for (const Grid& grid : plan.grids)
    for (int rank = 0; rank < grid.size(); ++rank) {
      if (const MemoryPeak peak = peak_memory(plan, grid.first_rank() + rank); peak.total > memory.total) memory = peak;
      bytes = std::max(bytes, rank_traffic(plan, grid.first_rank() + rank).counted.bytes);
      sent = std::max(sent, rank_traffic(plan, grid.first_rank() + rank).sent);
    }
  EXPECT_EQ(cost.memory.total, memory.total) << what;
  EXPECT_EQ(cost.memory.each, memory.each) << what;
  EXPECT_EQ(cost.traffic.bytes, bytes) << what;
  EXPECT_DOUBLE_EQ(cost.sent, sent) << what;
}

TEST(CostFormulas, HaveOnePriceForEqualLayersThatShareABinding) {
  Model m("alike");
  auto t = m.input("in", {.channels = 4, .spatial = {8, 8}});
  for (const char* name : {"first", "second", "third", "ruled", "after"})
    t = m.conv(name, t, {.filters = 4, .kernel = 3, .padding = 1});
  m.mean_squared_error("loss", t);
  EXPECT_EQ(m.layers()[5].like, 1);
  EXPECT_EQ(m.layers()[6].like, 6);
  Strategy strategy("y=2");
  strategy.layer("*", {.output = "H@y"}).layer("ruled", {.output = "W@y"});
  const Plan plan = bind(m, strategy, {.batch = 2, .optimizer = {}});
  const auto& layers = plan.layers;
  EXPECT_NE(layers[1].binding, layers[2].binding) << "the input of the first needs no gradient";
  EXPECT_EQ(layers[2].binding, layers[3].binding);
  EXPECT_NE(layers[4].binding, layers[3].binding) << "it has a rule of its own";
  EXPECT_NE(layers[5].binding, layers[3].binding) << "its input arrives in another layout";
  const Cost cost = estimate(plan, round_machine());
  EXPECT_EQ(cost.layers[2].forward.total(), cost.layers[3].forward.total());
}

}  // namespace

TEST(CostFormulas, PriceAgainAsIfForTheFirstTime) {
  int priced = 0;
  for (const auto& [name, plan] : named_cases())
    for (const Machine& machine : machines()) {
      if (!holds(machine, plan)) continue;
      SCOPED_TRACE(name + " on " + machine.name);
      const Machine other = changed(machine);
      const CostFormula formula(plan, machine);
      const Cost first = formula.cost(machine), second = formula.cost(other);
      expect_same(first, estimate(plan, machine));
      expect_same(second, estimate(plan, other));
      EXPECT_NE(first.seconds, second.seconds);
      expect_same(formula.cost(machine), first);
      ++priced;
      if (HasFailure()) return;
    }
  EXPECT_GE(priced, 60);
}

TEST(CostFormulas, AStepIsTheCostInShort) {
  for (const auto& [name, plan] : named_cases())
    for (const Machine& machine : {round_machine(0.5), clustered_machine(3, 2)}) {
      SCOPED_TRACE(name + " on " + machine.name);
      const CostFormula formula(plan, machine);
      for (const Machine& each : {machine, changed(machine)}) {
        const StepCost step = formula.step(each);
        const Cost cost = formula.cost(each);
        EXPECT_EQ(step.seconds, cost.seconds);
        EXPECT_EQ(step.stage, cost.stage);
        expect_same(step.parts, cost.parts);
      }
    }
}

TEST(CostFormulas, LeaveOutWhatCostsNothingMore) {
  for (const auto& [name, plan] : named_cases())
    for (const Machine& machine :
         {round_machine(0.5), clustered_machine(2, 1), clustered_machine(3, 2), machine_of_racks(2, 2, 1)})
      for (const Machine& each : {machine, changed(machine)}) {
        expect_plain(plan, each, name + " on " + machine.name);
        if (HasFailure()) return;
      }
}

TEST(CostFormulas, LeaveOutNothingOfDrawnPlans) {
  for (std::uint64_t seed = 1000; seed < 1000 + cases(250) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Plan plan =
        bind(drawn.model, drawn.strategy, {.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer});
    expect_plain(plan, round_machine(0.5), drawn.print());
    expect_plain(plan, changed(clustered_machine(3, 1)), drawn.print());
    expect_plain(plan, machine_of_racks(2, 2, 1), drawn.print());
    expect_plain(plan, changed(machine_of_racks(1, 3, 2)), drawn.print());
  }
}

// The first ranks along axes without halos, rings and panels hold the most: no other rank holds more.
TEST(FullestRank, OfDrawnPlansIsThatOfAllRanks) {
  for (std::uint64_t seed = 2000; seed < 2000 + cases(600) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Plan plan =
        bind(drawn.model, drawn.strategy, {.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer});
    Index most = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) most = std::max(most, peak_memory(plan, rank).total);
    EXPECT_EQ(fullest_rank(plan).memory.total, most) << "seed " << seed << ": " << drawn.print();
  }
}

TEST(CostFormulas, OfABetterMachineAreNoHigher) {
  for (std::uint64_t seed = 3000; seed < 3000 + cases(250) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Plan plan =
        bind(drawn.model, drawn.strategy, {.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer});
    std::mt19937_64 random(seed);
    const auto factor = [&] { return 1 + static_cast<double>(random() % 1000) / 300; };  // up to 4.3
    Machine machine = machine_of_racks(1 + static_cast<int>(random() % 3), 2, 1);
    for (Level& level : machine.levels) {
      level.latency.value *= factor();
      level.bandwidth.value /= factor();
      level.overlap.value = static_cast<double>(random() % 5) / 4;
    }
    const CostFormula formula(plan, machine);
    double before = formula.step(machine).seconds;
    const auto expect_better = [&](const std::string& what) {
      const double after = formula.step(machine).seconds;
      EXPECT_LE(after, before * (1 + 1e-12)) << what << ", seed " << seed << ": " << drawn.print();
      before = after;
    };
    for (Level& level : machine.levels) {
      level.latency.value /= factor();
      expect_better("latency of " + level.name);
      level.bandwidth.value *= factor();
      expect_better("bandwidth of " + level.name);
      level.links.value *= factor();
      expect_better("links of " + level.name);
      level.fan_out.value = 1;
      expect_better("fan-out of " + level.name);
      level.reduction.value += 1e7 * factor();
      expect_better("reduction of " + level.name);
    }
    for (const auto& [constant, what] :
         {std::pair(&machine.arithmetic, "arithmetic"), {&machine.memory_bandwidth, "memory bandwidth"}}) {
      constant->value *= factor();
      expect_better(what);
    }
    machine.kernel.value /= factor();
    expect_better("kernel");
  }
}

TEST(CostFormulas, AreOfTheLevelsThatTheyWereMadeFor) {
  const Plan plan = bound(two_convolutions(), all_as("data=2", "N@data"), 4);
  const CostFormula formula(plan, clustered_machine(2, 1));
  EXPECT_EQ(error_of([&] { formula.step(round_machine()); }),
            "the formula is for levels of 2, any number of ranks, but the machine 'round' has levels of any number of "
            "ranks; make a new formula for it");
  EXPECT_EQ(error_of([&] { formula.cost(clustered_machine(3, 1)); }),
            "the formula is for levels of 2, any number of ranks, but the machine 'round' has levels of 3, any number "
            "of ranks; make a new formula for it");
  EXPECT_GT(formula.step(clustered_machine(2, 2)).seconds, 0);
  Machine small = round_machine();
  small.levels[0].ranks = {1, ""};
  EXPECT_NE(error_of([&] { CostFormula(plan, small); }).find("has 2 ranks, but the machine 'round' holds 1"),
            std::string::npos);
}

TEST(CostFormulas, KeepMeasuredTimes) {
  const Plan plan = bound(two_convolutions(), Strategy(), 1);
  KernelTimes times("here");
  times.set(local_work(plan.layers[2], 0, plan.workload), {}, {5 * us, 8 * us, 6 * us, 4 * us});
  const CostFormula formula(plan, round_machine(), times);
  times = KernelTimes();
  const Machine other = changed(round_machine());
  const Cost cost = formula.cost(other);
  expect_seconds(cost.layers[2].forward.compute, 5 * us, "whatever the machine's rates");
  EXPECT_TRUE(cost.layers[2].measured);
  EXPECT_FALSE(cost.layers[1].measured);
  EXPECT_EQ(cost.layers[1].forward.compute, estimate(plan, other).layers[1].forward.compute);
}

}  // namespace partita::test::cost_formula_test
