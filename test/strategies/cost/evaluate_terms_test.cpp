// MachineRates: seconds of terms, worked out by hand. The machine has round numbers: 1 Gflop/s, 1 GB/s of memory, 1 us
// a kernel; a node level of 1 us and 1 GB/s, and a network of 10 us and 0.1 GB/s. A byte that is added costs 3 ns: two
// are read and one is written.
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/cost_terms.hpp"

#include "test/strategies/cost/priced.hpp"

#include <array>
#include <string>

using namespace partita;
using namespace partita::test;

namespace {

constexpr int node = 0, network = 1;

/// Nodes of 4 ranks.
Machine two_levels(double links = 4, double fan_out = 1) {
  Machine machine = clustered_machine(4, links);
  machine.levels[network].fan_out = {fan_out, ""};
  return machine;
}

CostTerms exchange_at(int level, double sharing = 1) { return {{{Verb::exchange, level, 2, sharing}}, {}}; }

/// A kernel whose seconds are given by pass.
KernelTerm takes(double forward, double backward_data, double backward_filter) {
  KernelTerm kernel;
  kernel.measured = true;
  kernel.seconds = {forward, backward_data, backward_filter};
  return kernel;
}

/// One message of so many bytes on route 0.
Movement message(double bytes) { return {0, 1, bytes, 0}; }

/// A movement of a layer that hides behind a pass, or behind none.
LayerMovement moves(double bytes, std::size_t pass, double PassCost::*part, int behind = -1, bool input = false) {
  return {message(bytes), pass, part, behind, input};
}

}  // namespace

TEST(MachineRates, AnExchangeTakesItsLatenciesAndItsBytes) {
  struct Case {
    int level;
    double messages, bytes, seconds;
  };
  for (const auto& [level, messages, bytes, seconds] :
       {Case{node, 1, 0, 1 * us}, Case{node, 1, 1000, 2 * us}, Case{node, 3, 5000, 8 * us},
        Case{network, 1, 1000, 20 * us}, Case{network, 2, 700, 27 * us}}) {
    const CostTerms terms = exchange_at(level);
    const Machine machine = two_levels();
    expect_seconds(MachineRates(terms, machine).seconds(Movement{0, messages, bytes, 0}), seconds,
                   fmt::format("{} messages of {} bytes at level {}", messages, bytes, level));
  }
}

// So many ranks of a unit share its links, of which the network above it can keep 1 / fan_out busy at once.
TEST(MachineRates, RanksShareTheLinksOfTheirUnit) {
  struct Case {
    double links, sharing, fan_out, share;
  };
  for (const auto& [links, sharing, fan_out, share] :
       {Case{1, 1, 1, 1}, Case{1, 4, 1, 0.25}, Case{2, 4, 1, 0.5}, Case{4, 4, 1, 1}, Case{4, 1, 1, 1},
        Case{2, 3, 1, 2. / 3}, Case{1, 1.5, 1, 2. / 3}, Case{4, 1, 2, 1}, Case{4, 4, 2, 0.5}, Case{8, 8, 2, 0.5},
        Case{8, 3, 2, 1}, Case{2, 4, 3, 1. / 6}}) {
    const CostTerms terms = exchange_at(network, sharing);
    const Machine machine = two_levels(links, fan_out);
    const MachineRates rates(terms, machine);
    const std::string what = fmt::format("{} ranks on {} links, fan-out {}", sharing, links, fan_out);
    expect_seconds(rates.way(message(0)).bandwidth, 1e8 * share, what);
    expect_seconds(rates.seconds(message(1000)), 10 * us + 10 * us / share, what);
  }
}

TEST(MachineRates, MeasuredSecondsReplaceTheFormula) {
  Machine machine = two_levels();
  machine.levels[node].verbs[{Verb::exchange, 2}] = {{{100, 5 * us}, {1000, 50 * us}}, ""};
  machine.levels[node].verbs[{Verb::all_reduce, 3}] = {{{8, 70 * us}}, ""};
  const CostTerms terms{{{Verb::exchange, node, 2, 1}, {Verb::exchange, network, 2, 1}, {Verb::all_reduce, node, 3, 1}},
                        {}};
  const MachineRates rates(terms, machine);
  expect_seconds(rates.seconds(Movement{0, 1, 100, 0}), 5 * us);
  expect_seconds(rates.seconds(Movement{0, 3, 300, 0}), 15 * us, "three messages of 100 bytes");
  expect_seconds(rates.seconds(Movement{0, 1, 2000, 0}), 100 * us, "in proportion beyond the last point");
  expect_seconds(rates.seconds(Movement{1, 1, 100, 0}), 11 * us, "another level is not measured");
  expect_seconds(rates.seconds(Movement{2, 2, 16, 0}), 140 * us, "two calls of 8 bytes, whatever the algorithm");
}

// A ring of 6 rounds that moves 1.5 n, recursive doubling of 2 rounds that moves 2 n and adds 2 n: with 1 us, 1 ns and
// 3 ns these take 6 us + 1.5 n and 2 us + 8 n, the same for 615.38 bytes.
TEST(MachineRates, ACollectiveTakesItsCheapestAlgorithm) {
  const Machine machine = two_levels();
  struct Case {
    double bytes;
    CollectiveAlgorithm algorithm;
    double seconds;
  };
  for (const auto& [bytes, algorithm, seconds] :
       {Case{0, CollectiveAlgorithm::recursive_doubling, 2 * us},
        Case{600, CollectiveAlgorithm::recursive_doubling, 6.8 * us}, Case{620, CollectiveAlgorithm::ring, 6.93 * us},
        Case{4000, CollectiveAlgorithm::ring, 12 * us}}) {
    const double n = bytes;
    const CostTerms terms{{{Verb::all_reduce, node, 4, 1}},
                          {{CollectiveAlgorithm::binomial, {99, 0, 0}},  // of another movement
                           {CollectiveAlgorithm::recursive_doubling, {2, 2 * n, 2 * n}},
                           {CollectiveAlgorithm::ring, {6, 1.5 * n, 0}},
                           {CollectiveAlgorithm::rabenseifner, {7, 2 * n, n}},
                           {CollectiveAlgorithm::binomial, {8, 4 * n, 2 * n}}}};
    const MachineRates rates(terms, machine);
    const Movement once{0, 1, n, 1}, thrice{0, 3, 3 * n, 1};
    EXPECT_EQ(rates.cheapest(once).algorithm, algorithm) << n << " bytes";
    expect_seconds(rates.seconds(once), seconds, fmt::format("{} bytes", n));
    expect_seconds(rates.seconds(thrice), 3 * seconds, "three calls");
  }
}

TEST(MachineRates, OfAlgorithmsThatCostTheSameTheFirstIsTaken) {
  const Machine machine = two_levels();
  const CostTerms terms{{{Verb::all_to_all, node, 2, 1}},
                        {{CollectiveAlgorithm::pairwise, {1, 10, 0}}, {CollectiveAlgorithm::bruck, {1, 10, 0}}}};
  EXPECT_EQ(MachineRates(terms, machine).cheapest(message(10)).algorithm, CollectiveAlgorithm::pairwise);
}

// A slower link favors few bytes: 10 us and 10 ns a byte, shared by four ranks on one link.
TEST(MachineRates, TheCheapestAlgorithmDependsOnTheLink) {
  const Machine machine = two_levels(1);
  const CostTerms terms{{{Verb::all_gather, network, 4, 1}, {Verb::all_gather, network, 4, 4}},
                        {{CollectiveAlgorithm::ring, {3, 750, 0}},
                         {CollectiveAlgorithm::recursive_doubling, {2, 1200, 0}},
                         {CollectiveAlgorithm::bruck, {2, 1300, 0}}}};
  const MachineRates rates(terms, machine);
  expect_seconds(rates.seconds(Movement{0, 1, 1000, 0}), 20 * us + 12 * us);
  expect_seconds(rates.seconds(Movement{1, 1, 1000, 0}), 30 * us + 30 * us);
}

TEST(MachineRates, AKernelTakesItsLaunchAndTheLongerOfOperationsAndBytes) {
  Machine machine = round_machine();
  machine.efficiency = {{KernelKind::conv, {{{1000, 0.5}}, ""}}, {KernelKind::others, {{{1000, 0.25}}, ""}}};
  const CostTerms terms;
  struct Case {
    KernelKind kind;
    double flops, bytes, seconds;
  };
  for (const auto& [kind, flops, bytes, seconds] :
       {Case{KernelKind::conv, 0, 0, 1 * us}, Case{KernelKind::conv, 1000, 100, 3 * us},
        Case{KernelKind::conv, 1000, 7000, 8 * us}, Case{KernelKind::others, 1000, 100, 5 * us},
        Case{KernelKind::product, 1000, 100, 5 * us}}) {  // no curve of its own: that of all others
    KernelTerm kernel;
    kernel.kind = kind;
    kernel.flops = flops;
    kernel.bytes = bytes;
    expect_seconds(MachineRates(terms, machine).seconds(kernel), seconds,
                   fmt::format("{} operations, {} bytes", flops, bytes));
  }
  machine.efficiency.clear();
  KernelTerm kernel;
  kernel.flops = 1000;
  expect_seconds(MachineRates(terms, machine).seconds(kernel), 2 * us, "no curve: all of the arithmetic");
}

// 1000 operations take 2 us. Backward data runs once for the gradient and once more for a forward that is recomputed.
TEST(MachineRates, PassesCountTheirCalls) {
  RankTerms rank;
  rank.rank = 5;
  rank.kernel.flops = 1000;
  rank.kernel.calls = {1, 2, 0};
  rank.kernel.recomputes = true;
  const CostTerms terms;
  const Machine machine = round_machine();
  const LayerCost cost = MachineRates(terms, machine).layer(rank);
  EXPECT_EQ(cost.rank, 5);
  EXPECT_FALSE(cost.measured);
  expect_seconds(cost.forward.compute, 2 * us);
  expect_seconds(cost.backward_data.compute, 4 * us);
  expect_seconds(cost.backward_filter.compute, 0);
}

TEST(MachineRates, MovementsCountWhereTheyBelong) {
  const CostTerms terms = exchange_at(node);
  const Machine machine = round_machine(0.5);  // nothing is hidden that has nothing to hide behind
  const RankTerms rank{
      0,
      takes(10 * us, 20 * us, 30 * us),
      {moves(0, 0, &PassCost::redistribution, -1, true), moves(1000, 1, &PassCost::redistribution, -1, true),
       moves(2000, 1, &PassCost::redistribution), moves(3000, 2, &PassCost::product),
       moves(4000, 0, &PassCost::collective), moves(5000, 0, &PassCost::collective)}};
  const LayerCost cost = MachineRates(terms, machine).layer(rank);
  EXPECT_TRUE(cost.measured);
  expect_seconds(cost.forward.redistribution, 1 * us);
  expect_seconds(cost.forward.collective, 5 * us + 6 * us);
  expect_seconds(cost.backward_data.redistribution, 2 * us + 3 * us);
  expect_seconds(cost.backward_filter.product, 4 * us);
  expect_seconds(cost.inputs, 1 * us + 2 * us);
  expect_seconds(cost.forward.total(), 22 * us);
  expect_seconds(cost.backward_data.total(), 25 * us);
  expect_seconds(cost.backward_filter.total(), 34 * us);
}

// A halo of n bytes takes 1 us + n ns.
TEST(MachineRates, HalosHideBehindComputing) {
  struct Case {
    std::string name;
    double overlap;
    KernelTerm kernel;
    std::vector<LayerMovement> movements;
    std::array<double, 3> halo, hidden;  // by pass
  };
  constexpr auto halo = &PassCost::halo;
  KernelTerm recomputes = takes(2 * us, 8 * us, 0);  // 2 us of the 8 us are the forward once more
  recomputes.recomputes = true;
  const std::vector<Case> table{
      {"no overlap", 0, takes(10 * us, 0, 0), {moves(3000, 0, halo, 0)}, {4 * us, 0, 0}, {0, 0, 0}},
      {"all of it", 1, takes(10 * us, 0, 0), {moves(3000, 0, halo, 0)}, {0, 0, 0}, {4 * us, 0, 0}},
      {"half of it", 0.5, takes(10 * us, 0, 0), {moves(3000, 0, halo, 0)}, {2 * us, 0, 0}, {2 * us, 0, 0}},
      {"more than there is to hide behind",
       1,
       takes(3 * us, 0, 0),
       {moves(3000, 0, halo, 0)},
       {1 * us, 0, 0},
       {3 * us, 0, 0}},
      {"nothing to hide behind", 1, takes(0, 10 * us, 0), {moves(3000, 0, halo, 0)}, {4 * us, 0, 0}, {0, 0, 0}},
      {"two share what there is",
       1,
       takes(5 * us, 0, 0),
       {moves(2000, 0, halo, 0), moves(3000, 0, halo, 0)},
       {2 * us, 0, 0},
       {5 * us, 0, 0}},
      {"a halo of dy behind the filter's gradient",
       1,
       takes(0, 0, 10 * us),
       {moves(3000, 1, halo, 2)},
       {0, 0, 0},
       {0, 0, 4 * us}},
      {"the forward once more hides in that part alone",
       1,
       recomputes,
       {moves(3000, 1, halo, recomputed_forward)},
       {0, 2 * us, 0},
       {0, 2 * us, 0}},
      {"the rest of backward data hides another",
       1,
       recomputes,
       {moves(3000, 1, halo, recomputed_forward), moves(6000, 1, halo, 1)},
       {0, 2 * us + 1 * us, 0},
       {0, 2 * us + 6 * us, 0}}};
  for (const auto& [name, overlap, kernel, movements, halos, hidden] : table) {
    const CostTerms terms = exchange_at(node);
    const Machine machine = round_machine(overlap);
    const LayerCost cost = MachineRates(terms, machine).layer(RankTerms{0, kernel, movements});
    const std::array passes{cost.forward, cost.backward_data, cost.backward_filter};
    for (std::size_t pass = 0; pass < 3; ++pass) {
      expect_seconds(passes[pass].halo, halos[pass], fmt::format("{}, pass {}", name, pass));
      expect_seconds(passes[pass].hidden, hidden[pass], fmt::format("{}, hidden behind pass {}", name, pass));
      expect_seconds(passes[pass].total(), kernel.seconds[pass] + halos[pass], name + ": hidden seconds are in no sum");
    }
  }
}

// Not the rank that computes longest, nor the one that moves most.
TEST(MachineRates, TheSlowestRankCounts) {
  const CostTerms terms = exchange_at(node);
  const Machine machine = round_machine();
  const auto rank = [](int number, double compute, double bytes) {
    return RankTerms{number, takes(compute, 0, 0), {moves(bytes, 0, &PassCost::redistribution)}};
  };
  const MachineRates rates(terms, machine);
  EXPECT_EQ(rates.layer({rank(7, 3 * us, 0)}).rank, 7);
  const LayerCost cost =
      rates.layer({rank(0, 9 * us, 0), rank(1, 6 * us, 5000), rank(2, 1 * us, 9000), rank(3, 6 * us, 5000)});
  EXPECT_EQ(cost.rank, 1) << "of equal ranks the first";
  expect_seconds(cost.forward.total(), 12 * us);
}

// Route 0 overlaps by a half, route 1 not at all: of 4 us and 40 us, 2 us go on behind the backward.
TEST(MachineRates, GradientSumsOverlapByTheirSeconds) {
  const CostTerms terms{{{Verb::exchange, node, 2, 1}, {Verb::exchange, network, 2, 1}}, {}};
  Machine machine = two_levels();
  machine.levels[node].overlap = {0.5, ""};
  const MachineRates rates(terms, machine);
  const Movement fast{0, 1, 3000, 0}, slow{1, 1, 3000, 0};
  struct Case {
    std::string name;
    std::vector<GradReduceTerms> ranks;
    double seconds, overlap, replicas, after;
  };
  const std::vector<Case> table{
      {"no rank", {}, 0, 0, 0, 0},
      {"nothing to sum", {{}}, 0, 0, 0, 0},
      {"one bucket", {{{fast}, {}, {}}}, 4 * us, 0.5, 0, 0},
      {"buckets of both levels", {{{fast, slow}, {}, {}}}, 44 * us, 2. / 44, 0, 0},
      {"replicas and norms overlap with nothing", {{{fast}, {fast}, {slow, fast}}}, 4 * us, 0.5, 4 * us, 44 * us},
      {"norms alone", {{{}, {}, {fast}}}, 0, 0, 0, 4 * us},
      {"the rank that takes longest with all of it",
       {{{fast, fast}, {}, {}}, {{fast}, {}, {slow}}, {{slow}, {}, {}}},
       4 * us,
       0.5,
       0,
       40 * us}};
  for (const auto& [name, ranks, seconds, overlap, replicas, after] : table) {
    const GradReduceCost cost = rates.grad_reduce(ranks);
    expect_seconds(cost.seconds, seconds, name);
    expect_seconds(cost.overlap, overlap, name);
    expect_seconds(cost.replicas, replicas, name);
    expect_seconds(cost.after, after, name);
    expect_seconds(cost.total(), seconds + replicas + after, name);
  }
}

TEST(MachineRates, AnUpdateTakesTheLongerOfItsBytesAndWhatWasMeasured) {
  const CostTerms terms;
  const Machine machine = round_machine();
  const MachineRates rates(terms, machine);
  expect_seconds(rates.update({0, 0}), 0);
  expect_seconds(rates.update({5000, 0}), 5 * us);
  expect_seconds(rates.update({5000, 7 * us}), 7 * us);
  expect_seconds(rates.update({9000, 7 * us}), 9 * us);
}

TEST(MachineRates, ATransferTakesWhatItsSlowestRankTakes) {
  const CostTerms terms{{{Verb::exchange, node, 2, 1}, {Verb::exchange, network, 2, 1}}, {}};
  Machine machine = two_levels();
  machine.levels[node].overlap = {0.25, ""};
  machine.levels[network].overlap = {0.75, ""};
  const MachineRates rates(terms, machine);
  const auto expect = [&](const std::vector<Movement>& ranks, double seconds, double overlap) {
    const StageTransfer transfer = rates.transfer(ranks);
    expect_seconds(transfer.seconds, seconds);
    expect_seconds(transfer.overlap, overlap);
  };
  expect({}, 0, 0);
  expect({{0, 1, 2000, 0}}, 3 * us, 0.25);
  expect({{0, 1, 2000, 0}, {1, 1, 100, 0}}, 11 * us, 0.75);
  expect({{1, 1, 100, 0}, {0, 2, 20000, 0}}, 22 * us, 0.25);
}
